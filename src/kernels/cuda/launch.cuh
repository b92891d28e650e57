// Launches that overlap: a kernel's blocks are placed on the multiprocessors while the last blocks of the kernel before
// it are still running, and wait there for its results. Where there is no code for Hopper, these are ordinary launches.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/matmul.h"
#include "runtime/context.h"

namespace some::cuda {

// Such a kernel must call this before it touches any memory that another kernel writes or reads. It waits until the
// previous kernel has ended and its results are visible, then allows the next one to be placed. Since every kernel of a
// chain waits like this, everything before the previous kernel has ended as well.
__device__ __forceinline__ void after_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Like after_previous(), but the next kernel is placed only when this one ends: for small kernels that run beside large
// ones, whose blocks would be kept out by blocks that wait on the multiprocessors.
__device__ __forceinline__ void after_whole_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// kernel<<<blocks, threads, shared>>>(arguments...) on the context's stream, for a kernel that calls one of these.
template <typename... Parameters, typename... Arguments>
void launch_behind(const Context& ctx, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, std::size_t shared,
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
