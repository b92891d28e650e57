// One operation, two implementations. SOME_OP(result, name, (parameters), (arguments)) declares, inside the room where
// it stands, cpu::name (in x_cpu.cc, the readable truth), cuda::name (in x_cuda.cu, the fast one; no_cuda.cc stands in
// without a CUDA compiler), and name itself, which picks by the context's device. The first parameter is always
// `Context& ctx`.
#pragma once

#include "runtime/context.h"

#define SOME_OP(result, name, parameters, arguments)     \
  namespace cpu {                                        \
  result name parameters;                                \
  }                                                      \
  namespace cuda {                                       \
  result name parameters;                                \
  }                                                      \
  inline result name parameters {                        \
    if (ctx.device.is_cpu()) return cpu::name arguments; \
    const some::cuda::OnGpu on(*ctx.cuda);               \
    return cuda::name arguments;                         \
  }
