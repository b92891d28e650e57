#!/bin/bash
# Builds scripts/cuda_kernels_bench.cu with the kernels it checks:
#   [ARCHS="90a 80"] cuda_kernels_bench.sh [folder, default build-kernels]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build-kernels}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
mkdir -p "$out"
flags=(-std=c++20 --expt-relaxed-constexpr --extended-lambda -lineinfo -O3 -Isrc -Iscripts
  -DFMT_HEADER_ONLY -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1
  -diag-suppress=20208 -Xcompiler=-Wall,-fopenmp-simd)
for arch in ${ARCHS:-90a 80}; do flags+=("-gencode=arch=compute_$arch,code=sm_$arch"); done
objects=()
for source in src/ops/grouped_gemm*.cu src/ops/experts_cuda.cu src/ops/attention_cuda.cu src/base/device_cuda.cu \
  src/base/{tensor,context,device,staging,threads,cpus,log}.cc scripts/cuda_kernels_bench.cu; do
  object=$out/$(basename "$source").o
  objects+=("$object")
  newest=$(ls -t "$source" src/ops/*.cuh src/ops/*.h | head -1)
  if [ ! -e "$object" ] || [ "$newest" -nt "$object" ]; then
    echo "$source"
    case $source in
      *.cc) g++ -std=c++20 -O2 -fopenmp-simd -Isrc -DFMT_HEADER_ONLY -c "$source" -o "$object" ;;
      *) "$nvcc" "${flags[@]}" -c "$source" -o "$object" ;;
    esac
  fi
done
"$nvcc" -o "$out/cuda_kernels_bench" "${objects[@]}" -lcublas -lcublasLt -Xcompiler=-static-libstdc++,-static-libgcc
