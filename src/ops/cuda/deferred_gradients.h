// What a dense layer's backward pass hands over while gradients are held (ops/deferred_gradients.h). CUDA only.
#pragma once

#include "tensor/param.h"

namespace some {
struct Context;
}

namespace some::cuda {

// Puts off weight.grad += dy^T x and bias.grad += column sums of dy (where the Params have gradients). Returns false,
// without doing anything, if gradients are not held or these cannot be.
bool defer_gradient(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias);

// Does the same now, with a launch each for the product and the sums.
void add_gradient(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias);

}  // namespace some::cuda
