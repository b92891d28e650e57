// Programmatic dependent launch: a kernel's blocks are placed on the multiprocessors while the last blocks of the
// previous kernel are still running, and wait there for its results. Without code compiled for Hopper, these are
// ordinary launches.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/matmul.h"
#include "runtime/context.h"

namespace some::cuda {

// Waits until the previous kernel has ended and its results are visible, then allows the next kernel to be placed. A
// kernel launched this way must call this before it touches any memory that another kernel writes or reads. Since every
// kernel of a chain waits like this, all kernels before the previous one have ended as well.
__device__ __forceinline__ void wait_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Like wait_previous_kernel(), but the next kernel is placed only when this one ends. For small kernels that run
// concurrently with large ones: blocks waiting on the multiprocessors would keep out the large kernel's blocks.
__device__ __forceinline__ void wait_previous_kernel_no_trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Launches kernel<<<blocks, threads, shared>>>(arguments...) on the context's stream, for a kernel that calls
// wait_previous_kernel() or wait_previous_kernel_no_trigger().
template <typename... Parameters, typename... Arguments>
void launch_dependent(const Context& ctx, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, std::size_t shared,
                      Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = ctx.cuda->stream;
  config.attrs = &attribute;
  config.numAttrs = ctx.cuda->major == 9 ? 1 : 0;  // only code compiled for Hopper contains the wait
  SOME_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

}  // namespace some::cuda
