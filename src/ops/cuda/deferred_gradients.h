// Weight gradients that a dense layer's backward pass hands over while gradients are deferred
// (ops/deferred_gradients.h). CUDA only.
#pragma once

#include "tensor/param.h"

namespace some {
struct Context;
}

namespace some::cuda {

// Defers weight.grad += dy^T x and bias.grad += column sums of dy (if the Params have gradients). Returns false,
// without doing anything, if gradients are not being deferred or these cannot be.
bool defer_gradient(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias);

// Computes the same immediately, with one launch for the GEMM and one for the sums.
void add_gradient(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias);

}  // namespace some::cuda
