# some_traced: the program on a CUDA runtime that records what it asks of a GPU instead of doing it, for machines
# without one (tests/gpu/fake_cuda/runtime.cc). The same objects, another runtime: the fake is made of object files,
# which come first, so nothing is left to take from cudart. A CUDA function that the program begins to use and the fake
# lacks fails the link here with cudart's symbols defined twice; it is to be added to the fake.
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
