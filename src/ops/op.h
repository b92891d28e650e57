// One operation, two implementations. SOME_OP(result, name, (parameters), (arguments)) declares some::cpu::name (in
// x_cpu.cc, the readable truth), some::cuda::name (in x_cuda.cu, the fast one; no_cuda.cc stands in without a CUDA
// compiler), and some::name, which picks by the context's device. The first parameter is always `Context& ctx`.
#pragma once

#include "base/context.h"

#define SOME_OP(result, name, parameters, arguments) \
  namespace cpu {                                    \
  result name parameters;                            \
  }                                                  \
  namespace cuda {                                   \
  result name parameters;                            \
  }                                                  \
  inline result name parameters { return ctx.device == Device::cpu ? cpu::name arguments : cuda::name arguments; }
