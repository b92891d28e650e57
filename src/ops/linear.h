// Dense layers: y = x W^T + b, optionally followed by the exact (erf) GELU. Weights are [out, in].
#pragma once

#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// x: [T, in] compute. bias may be empty (a default-made Param). y: [T, out] in compute or master precision.
SOME_OP(void, linear_forward, (Context & ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& y),
        (ctx, x, weight, bias, y))

// pre = x W^T + b, y = GELU(pre); both [T, out] compute.
SOME_OP(void, linear_gelu_forward,
        (Context & ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& pre, Tensor& y),
        (ctx, x, weight, bias, pre, y))

enum class Into { overwrite, add };

// dy: [T, out] in compute or master precision. weight.grad += dy^T x, bias.grad += column sums of dy (each only where
// the Param has a gradient), and dx = dy W or dx += dy W when dx is not null (dx: [T, in] compute).
SOME_OP(void, linear_backward,
        (Context & ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias, Tensor* dx,
         Into into),
        (ctx, dy, x, weight, bias, dx, into))

// Backward of linear_gelu_forward: dy [T, out] compute is the gradient of y and becomes that of pre, dy * GELU'(pre),
// in place; the rest as in linear_backward, from that.
SOME_OP(void, linear_gelu_backward,
        (Context & ctx, const Tensor& pre, Tensor& dy, const Tensor& x, const Param& weight, const Param& bias,
         Tensor* dx, Into into),
        (ctx, pre, dy, x, weight, bias, dx, into))

}  // namespace some
