// One operation, two implementations. SOME_OP(result, name, (parameters), (arguments)) declares, in the namespace where
// it is used, cpu::name (in x_cpu.cc, the reference implementation), cuda::name (in x_cuda.cu, the fast one), and name
// itself, which dispatches on the context's device. A build without CUDA compiles no x_cuda.cu; there, name fails on a
// GPU with one clear error. The first parameter is always `Context& ctx`.
#pragma once

#include "runtime/context.h"

#if SOME_HAVE_CUDA
#define SOME_OP_ON_GPU(name, arguments)            \
  const some::cuda::CudaDeviceGuard on(*ctx.cuda); \
  return cuda::name arguments
#else
#define SOME_OP_ON_GPU(name, arguments) some::cuda::fail_unavailable()
#endif

#define SOME_OP(result, name, parameters, arguments)     \
  namespace cpu {                                        \
  result name parameters;                                \
  }                                                      \
  namespace cuda {                                       \
  result name parameters;                                \
  }                                                      \
  inline result name parameters {                        \
    if (ctx.device.is_cpu()) return cpu::name arguments; \
    SOME_OP_ON_GPU(name, arguments);                     \
  }
