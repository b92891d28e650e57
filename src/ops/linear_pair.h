// Fused pairs of dense layers that read the same input, and their backward passes.
#pragma once

#include "ops/linear.h"

namespace some {

// Computes pre = x W1^T + b, y = GELU(pre), other = x W2^T. Like linear_gelu_forward and linear_forward, all in compute
// precision.
SOME_OP(void, linear_two_forward,
        (Context & ctx, const Tensor& x, const Param& first, const Param& bias, Tensor& pre, Tensor& y,
         const Param& second, Tensor& other),
        (ctx, x, first, bias, pre, y, second, other))

// Computes the gradient of the shared input of two layers: dx = first_dy W1 + second_dy W2, or adds this to dx. Types
// as in linear_backward, but both dy in compute precision.
SOME_OP(void, linear_inputs_backward,
        (Context & ctx, const Tensor& first_dy, const Param& first, const Tensor& second_dy, const Param& second,
         Tensor& dx, Into into),
        (ctx, first_dy, first, second_dy, second, dx, into))

// Backward pass of a layer that reads y = GELU(pre): dpre = (dy W) GELU'(pre), weight.grad += dy^T y and bias.grad +=
// column sums of dy. dy: [T, out] compute; pre, y, dpre: [T, in] compute.
SOME_OP(void, linear_after_gelu_backward,
        (Context & ctx, const Tensor& dy, const Tensor& y, const Param& weight, const Param& bias, const Tensor& pre,
         Tensor& dpre),
        (ctx, dy, y, weight, bias, pre, dpre))

}  // namespace some
