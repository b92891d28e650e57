# Toolchain file: the CPU part for arm64, cross-compiled on Debian and tested under qemu-user (scripts/arm64).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# Static programs: qemu 7.2 hangs when a program that is linked to shared libraries starts a thread.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)

# Disables what cannot be used for arm64 on this machine: its CUDA, MPI and Python.
set(SOME_CUDA OFF CACHE BOOL "")
set(SOME_PYTHON_MODULE OFF CACHE BOOL "")
set(CMAKE_DISABLE_FIND_PACKAGE_MPI ON)
