// A check for infinities and NaNs.
#pragma once

#include "tensor/tensor.h"

namespace some {

// True if all elements are finite; always true for integer types.
bool all_finite(const Tensor& tensor);

}  // namespace some
