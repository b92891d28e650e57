// The yardstick of every speed this program reports: what the machine's own matrix product reaches.
#pragma once

#include "runtime/context.h"

namespace some {

// Operations a second: fp32 at 4096 x 512 x 1024 on a CPU, the compute precision at 8192^3 on a GPU. Measured, never
// looked up.
double measure_matrix_rate(Context& ctx);

}  // namespace some
