// A trainable parameter as operations see it. All parameters of a model lie in four flat buffers (value, compute copy,
// gradient, and the optimizer's), so that the optimizer is one pass; these are views into them.
#pragma once

#include "base/rooms.h"
#include "base/tensor.h"

namespace some::ops {

struct Param {
  Tensor value;    // master precision
  Tensor compute;  // the same numbers in compute precision; the same memory as `value` when the precisions agree
  Tensor grad;     // master precision; operations ADD to it. Empty when nothing is to be learnt (evaluation)
  explicit operator bool() const { return static_cast<bool>(value); }
};

}  // namespace some::ops
