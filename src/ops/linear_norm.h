// A dense layer whose result is added to the residual stream and normed: the end of every block of the model (spec 2).
#pragma once

#include "base/rooms.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace some::ops {

// linear_forward of x, weight and bias (which may be empty), then add_norm_forward of the residual and that, to the
// same numbers: sum = residual + x W^T + bias, y = LN(sum) * norm_weight + norm_bias. x: [T, in], residual, sum, y: [T,
// d] compute; mean, rstd: [T] master.
SOME_OP(void, linear_norm_forward,
        (Context & ctx, const Tensor& x, const Param& weight, const Param& bias, const Tensor& residual,
         const Param& norm_weight, const Param& norm_bias, Tensor& sum, Tensor& y, Tensor& mean, Tensor& rstd),
        (ctx, x, weight, bias, residual, norm_weight, norm_bias, sum, y, mean, rstd))

}  // namespace some::ops
