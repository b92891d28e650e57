// Dense layers: y = x W^T + b, optionally followed by the exact (erf) GELU. Weights are [out, in]. On a GPU, matrices
// in compute precision given to linear_forward and linear_backward may have more columns than are used, which are
// neither read nor written: rows that are further apart can be better aligned.
#pragma once

#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Computes y = x W^T + b. x: [T, in] compute. bias may be empty (a default-constructed Param). y: [T, out] in compute
// or master precision.
SOME_OP(void, linear_forward, (Context & ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& y),
        (ctx, x, weight, bias, y))

// Computes pre = x W^T + b and y = GELU(pre); both [T, out] compute.
SOME_OP(void, linear_gelu_forward,
        (Context & ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& pre, Tensor& y),
        (ctx, x, weight, bias, pre, y))

enum class Into { overwrite, add };

// Computes weight.grad += dy^T x and bias.grad += column sums of dy (each only if the Param has a gradient), and dx =
// dy W or dx += dy W if dx is not null. dy: [T, out] in compute or master precision; dx: [T, in] compute.
SOME_OP(void, linear_backward,
        (Context & ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias, Tensor* dx,
         Into into),
        (ctx, dy, x, weight, bias, dx, into))

// Backward pass of linear_gelu_forward: replaces dy [T, out] compute, the gradient of y, by the gradient of pre, dy *
// GELU'(pre). The rest is as in linear_backward, with that gradient.
SOME_OP(void, linear_gelu_backward,
        (Context & ctx, const Tensor& pre, Tensor& dy, const Tensor& x, const Param& weight, const Param& bias,
         Tensor* dx, Into into),
        (ctx, pre, dy, x, weight, bias, dx, into))

}  // namespace some
