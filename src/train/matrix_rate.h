// Measures the GEMM throughput of the machine, the reference for all reported speeds.
#pragma once

#include "runtime/context.h"

namespace some {

// Returns FLOP/s: fp32 at 4096 x 512 x 1024 on a CPU, the compute precision at 8192^3 on a GPU. Always measured.
double measure_gemm_rate(Context& ctx);

}  // namespace some
