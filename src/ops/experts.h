// The mixture of experts itself: choices sorted by expert, then two products for each expert (spec 3.5).
#pragma once

#include "kernels/gemm/dispatch_plan.h"
#include "kernels/gemm/low_rank.h"
#include "ops/linear.h"
#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Allocates the plan's tensors from the context's arena. indices: i32 [T, k]; counts: those of ops/route.h, or empty.
SOME_OP(DispatchPlan, make_dispatch,
        (Context & ctx, const Tensor& indices, int experts, const Tensor& counts = Tensor()),
        (ctx, indices, experts, counts))

struct ExpertWeights {
  Tensor w1;               // [E, f, d] compute
  Tensor w2;               // [E, d, f] compute; empty for output_proj = "features"
  LowRank low1{}, low2{};  // training = "lora": what is added to w1 and w2
};

// What the backward pass needs of the forward pass; rows in plan order, compute precision. It has `pre` alone, or,
// where experts_keep_outputs says so and the experts do not learn, both.
struct ExpertTape {
  Tensor pre;         // [T*k, f]: w1 x, or with outputs GELU'(w1 x)
  Tensor outputs;     // [T*k, d]: w2 GELU(w1 x)
  Tensor low1, low2;  // [T*k, r]: what the corrections' first factors make of what their matrices are given
};

// Whether the backward pass is quicker with the outputs than by computing the GELU and its slope again.
SOME_OP(bool, experts_keep_outputs, (Context & ctx, const ExpertWeights& weights), (ctx, weights))

// y[t] = sum_i gate[t,i] * w2 GELU(w1 x) ([T, d]), or sum_i gate[t,i] * GELU(w1 x) ([T, f]) without w2;
// compute. Fills what of the tape is there.
SOME_OP(void, experts_forward,
        (Context & ctx, const Tensor& x, const ExpertWeights& weights, const DispatchPlan& plan, const Tensor& gates,
         ExpertTape& tape, Tensor& y),
        (ctx, x, weights, plan, gates, tape, y))

struct ExpertGrads {  // master precision, added to; only where the matrices themselves learn (training = "full")
  Tensor w1;
  Tensor w2;
};

struct RouterBackward;  // ops/router_backward.h

struct ExpertsBackward {
  const Tensor &dy, &x;
  const ExpertWeights& weights;
  const DispatchPlan& plan;
  const Tensor& gates;
  ExpertTape& tape;              // may be overwritten
  Tensor& dx;                    // [T, d] compute, overwritten or added to
  Into into;                     // of dx
  Tensor& dgates;                // [T, k] master, overwritten
  ExpertGrads* grads = nullptr;  // null: not needed
  // If its results follow from dgates, a GPU computes them here, concurrently with the rest; otherwise, and if this is
  // null, they are left to the caller.
  RouterBackward* router = nullptr;
};
// The gradients of low-rank corrections are added to those of their parameters.
SOME_OP(void, experts_backward, (Context & ctx, const ExpertsBackward& in), (ctx, in))

// The sum over a token's choices alone, where a row of each is at hand: y[t] = sum_i gate[t,i] * rows[place[t,i]], or
// added to y; without gates (null) each counts once. rows: [N, w], y: [T, w] compute; place: i32 [T, k].
SOME_OP(void, sum_choices,
        (Context & ctx, const Tensor& rows, const Tensor& place, const Tensor* gates, Into into, Tensor& y),
        (ctx, rows, place, gates, into, y))

}  // namespace some
