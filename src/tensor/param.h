// A parameter as seen by operations. All trained parameters of a model are stored in flat buffers (value, compute copy,
// gradient and the two optimizer moments), so that the optimizer makes one pass; a Param holds views into them. A
// frozen parameter has only `compute`.
#pragma once

#include "tensor/tensor.h"

namespace some {

struct Param {
  Tensor value;    // master precision
  Tensor compute;  // the same numbers in compute precision; shares the memory of `value` if the precisions are equal
  Tensor grad;     // master precision; operations ADD to it. Empty if nothing is trained (evaluation)
  explicit operator bool() const { return static_cast<bool>(compute); }
};

}  // namespace some
