# The program for CPUs on Debian 12.
#   docker build -t some . && docker run --rm -it -v "$PWD/runs:/data/runs" some train tiny
# The stage `develop` has all packages that ./check requires (.devcontainer uses it): docker build --target
# develop .
FROM debian:12 AS packages
WORKDIR /src
COPY scripts/install-packages scripts/install-packages
RUN scripts/install-packages build && rm -rf /var/lib/apt/lists/*

FROM packages AS develop
RUN scripts/install-packages check \
 && apt-get update && apt-get install -y --no-install-recommends git clang-format-14 clang-tidy-14 gdb \
 && rm -rf /var/lib/apt/lists/*

FROM packages AS build
COPY . .
RUN cmake -S . -B build -G Ninja -DSOME_CUDA=OFF -DSOME_TESTS=OFF -DSOME_BENCH=OFF -DSOME_UNITY=ON \
 && cmake --build build \
 && cmake --install build --prefix /opt/some --strip

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libdnnl2 libedit2 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/some /usr/local
WORKDIR /data
ENTRYPOINT ["some"]
