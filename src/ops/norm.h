// Residual sum and LayerNorm in one pass (spec 2; eps 1e-5).
#pragma once

#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Computes sum = x + addend (sum = x when addend is null; then `sum` may share x's memory) and y = LN(sum) * weight +
// bias. x, addend, sum, y: [T, d] compute. mean, rstd: [T] master, kept for the backward pass.
SOME_OP(void, add_norm_forward,
        (Context & ctx, const Tensor& x, const Tensor* addend, const Param& weight, const Param& bias, Tensor& sum,
         Tensor& y, Tensor& mean, Tensor& rstd),
        (ctx, x, addend, weight, bias, sum, y, mean, rstd))

// Computes dsum = gradient of LN with respect to its input, plus `extra` if not null (a gradient that reaches `sum` by
// another path, as in pre-norm); weight.grad and bias.grad are added to. dsum may share memory with dy or extra. If
// `copy` is not null, dsum is also written there (to be added to while dsum is still being read); it may share memory
// with dy.
SOME_OP(void, norm_backward,
        (Context & ctx, const Tensor& dy, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
         const Param& weight, const Param& bias, const Tensor* extra, Tensor& dsum, Tensor* copy = nullptr),
        (ctx, dy, sum, mean, rstd, weight, bias, extra, dsum, copy))

}  // namespace some
