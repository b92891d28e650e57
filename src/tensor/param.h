// A parameter as operations see it. All trained parameters of a model are stored in flat buffers (value, compute copy,
// gradient and the optimizer's two), so that the optimizer takes one pass; these are views into them. A frozen
// parameter has only `compute`.
#pragma once

#include "tensor/tensor.h"

namespace some {

struct Param {
  Tensor value;    // master precision
  Tensor compute;  // the same numbers in compute precision; the same memory as `value` when the precisions agree
  Tensor grad;     // master precision; operations ADD to it. Empty when nothing is to be learnt (evaluation)
  explicit operator bool() const { return static_cast<bool>(compute); }
};

}  // namespace some
