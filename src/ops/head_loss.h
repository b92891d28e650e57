// Output head and cross entropy together, so that the logits of a batch never exist at once (spec 5, "Loss").
#pragma once

#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// nll[t] = -log softmax(W h[t] + b)[targets[t]], 0 where targets[t] < 0. h: [T, d] compute; targets: i32 [T]; nll: [T]
// master. With dh not null, the loss scale * sum_t nll[t] is also differentiated: dh [T, d] compute is overwritten,
// weight.grad and bias.grad are added to.
SOME_OP(void, head_loss,
        (Context & ctx, const Tensor& h, const Param& weight, const Param& bias, const Tensor& targets, double scale,
         Tensor& nll, Tensor* dh),
        (ctx, h, weight, bias, targets, scale, nll, dh))

}  // namespace some
