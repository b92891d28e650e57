// Launches that overlap: a kernel is put on the multiprocessors while the one before it still runs its last blocks, and
// waits there for that one's results. Without code for Hopper it is an ordinary launch.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "base/context.h"
#include "base/rooms.h"
#include "ops/cuda_state.h"

namespace some::ops::cuda {

// The first thing such a kernel does, before it touches any memory another kernel writes or reads: waits until the
// kernel before has ended and its results can be read; then lets the next one be put in place. As every kernel of a
// chain waits, whatever came before the last one has ended too.
__device__ __forceinline__ void after_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// kernel<<<blocks, threads, shared>>>(arguments...) on the context's stream; the kernel begins with after_previous().
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
  config.numAttrs = ctx.cuda->major == 9 ? 1 : 0;  // 9 only where the code is Hopper's own, which has the wait
  SOME_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

}  // namespace some::ops::cuda
