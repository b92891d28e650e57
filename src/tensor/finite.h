// Whether all numbers of a tensor are numbers.
#pragma once

#include "tensor/tensor.h"

namespace some {

// Of whole numbers it always holds.
bool all_finite(const Tensor& tensor);

}  // namespace some
