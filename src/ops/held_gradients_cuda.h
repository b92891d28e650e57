// What a dense layer's backward pass hands over while gradients are held (ops/held_gradients.h). CUDA only.
#pragma once

#include "base/rooms.h"
#include "ops/param.h"

namespace some {
struct Context;
}

namespace some::ops::cuda {

// weight.grad += dy^T x and bias.grad += column sums of dy (where the Params have gradients), later. False: nothing is
// held, or not what these are, and nothing will be done.
bool hold_gradient(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias);

// The same now, product and sums each in a launch of its own.
void add_gradient(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias);

}  // namespace some::ops::cuda
