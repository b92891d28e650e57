// Output head fused with cross-entropy, so that the logits of a batch never exist all at once (spec 5, "Loss").
#pragma once

#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Computes nll[t] = -log softmax(W h[t] + b)[targets[t]], 0 where targets[t] < 0. h: [T, d] compute; targets: i32 [T];
// nll: [T] master. If dh is not null, also computes the gradients of scale * sum_t nll[t]: dh [T, d] compute is
// overwritten, weight.grad and bias.grad are added to.
SOME_OP(void, head_loss,
        (Context & ctx, const Tensor& h, const Param& weight, const Param& bias, const Tensor& targets, double scale,
         Tensor& nll, Tensor* dh),
        (ctx, h, weight, bias, targets, scale, nll, dh))

}  // namespace some
