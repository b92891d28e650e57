# some_traced: the program with a CUDA runtime that records calls instead of executing them, for machines without a GPU
# (tests/gpu/fake_cuda/runtime.cc). It links the same objects; the fake's object files come first, so the linker takes
# nothing from cudart. If the program begins to call a CUDA function that the fake lacks, the link fails with duplicate
# symbols of cudart: add the function to the fake.
file(GLOB fake_cuda_sources CONFIGURE_DEPENDS tests/gpu/fake_cuda/*.cc)
add_library(some_fake_cuda OBJECT ${fake_cuda_sources})
target_include_directories(some_fake_cuda PRIVATE tests/gpu/fake_cuda src)
target_link_libraries(some_fake_cuda PRIVATE some_options)
target_include_directories(some_fake_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(some_fake_cuda PRIVATE -Wall -Wextra -O1)

add_executable(some_traced src/cli/main.cc tests/gpu/matrix_rate.cc)
target_link_options(some_traced PRIVATE -Wl,--as-needed)  # cuBLASLt is a library of its own, which must not be needed
target_link_libraries(some_traced PRIVATE some_fake_cuda some_cli)
target_compile_options(some_traced PRIVATE -O1)
