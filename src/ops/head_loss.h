// Output head fused with cross-entropy, so that the logits of a batch never exist all at once (spec 5, "Loss").
#pragma once

#include <utility>

#include "runtime/op.h"
#include "runtime/schedule.h"
#include "tensor/param.h"

namespace some {

// Factor on the loss: a number, or a master tensor [1] on the device, which a recorded step (tensor/graph.h) reads at
// every replay.
struct LossScale {
  LossScale(double factor) : value(factor) {}
  explicit LossScale(Tensor factor) : tensor(std::move(factor)) {}
  double value = 1;
  Tensor tensor;  // if not empty, `value` is ignored
};

// Computes nll[t] = -log softmax(W h[t] + b)[targets[t]], 0 where targets[t] < 0. h: [T, d] compute; targets: i32 [T];
// nll: [T] master. If dh is not null, also computes the gradients of scale * sum_t nll[t]: dh [T, d] compute is
// overwritten, weight.grad and bias.grad are added to. schedule: for the gradient of the bias, which may run
// concurrently with later work: the caller joins it before it reads that gradient or releases scratch memory; null:
// nothing runs concurrently.
SOME_OP(void, head_loss,
        (Context & ctx, const Tensor& h, const Param& weight, const Param& bias, const Tensor& targets,
         const LossScale& scale, Tensor& nll, Tensor* dh, Schedule* schedule = nullptr),
        (ctx, h, weight, bias, targets, scale, nll, dh, schedule))

}  // namespace some
