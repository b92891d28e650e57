// Mixture-of-experts layer after routing: routing slots are sorted by expert, then each expert's rows pass two GEMMs
// (spec 3.5).
#pragma once

#include "kernels/gemm/dispatch_plan.h"
#include "kernels/gemm/low_rank.h"
#include "ops/hadamard_experts.h"
#include "ops/linear.h"
#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Returns the dispatch plan, with tensors from the context's arena. indices: i32 [T, k]; counts: from Routing
// (ops/route.h), or empty.
SOME_OP(DispatchPlan, make_dispatch,
        (Context & ctx, const Tensor& indices, int experts, const Tensor& counts = Tensor()),
        (ctx, indices, experts, counts))

struct ExpertWeights {
  Tensor w1;               // [E, f, d] compute
  Tensor w2;               // [E, d, f] compute; empty for output_proj = "features"
  LowRank low1{}, low2{};  // training = "lora": the corrections added to w1 and w2
  // init = "hadamard": in place of w1 and w2, which are empty. The operations below accept this on the CPU, for
  // low-rank corrections; without these use ops/hadamard.h, which needs no plan.
  HadamardExperts hadamard{};
  bool has_w2() const { return w2 || hadamard.has_w2; }
};

// Activations that the backward pass needs from the forward pass; rows in plan order, compute precision. `pre` is
// always present; `outputs` only if experts_keep_outputs is true and the experts are not trained.
struct ExpertTape {
  Tensor pre;         // [T*k, f]: w1 x or, with outputs, GELU'(w1 x)
  Tensor outputs;     // [T*k, d]: w2 GELU(w1 x)
  Tensor low1, low2;  // [T*k, r]: first factor of each correction times the input of its matrix
};

// True if the backward pass is faster with stored outputs than with recomputing the GELU and its slope.
SOME_OP(bool, experts_keep_outputs, (Context & ctx, const ExpertWeights& weights), (ctx, weights))

// Computes y[t] = sum_i gate[t,i] * w2 GELU(w1 x) ([T, d]), or sum_i gate[t,i] * GELU(w1 x) ([T, f]) without w2;
// compute. Fills the tensors of the tape that are allocated.
SOME_OP(void, experts_forward,
        (Context & ctx, const Tensor& x, const ExpertWeights& weights, const DispatchPlan& plan, const Tensor& gates,
         ExpertTape& tape, Tensor& y),
        (ctx, x, weights, plan, gates, tape, y))

struct ExpertGrads {  // master precision, added to; only if the matrices themselves are trained (training = "full")
  Tensor w1;
  Tensor w2;
};

struct RouterBackward;  // ops/router_backward.h
class Schedule;         // runtime/schedule.h

struct ExpertsBackward {
  const Tensor &dy, &x;
  const ExpertWeights& weights;
  const DispatchPlan& plan;
  const Tensor& gates;
  ExpertTape& tape;              // may be overwritten
  Tensor& dx;                    // [T, d] compute, overwritten or added to
  Into into;                     // applies to dx
  Tensor& dgates;                // [T, k] master, overwritten
  ExpertGrads* grads = nullptr;  // null: not needed
  // If the router's gradients follow from dgates, a GPU computes them here, concurrently with the rest. Otherwise the
  // caller has to compute them. Null: no router, or no schedule to compute them concurrently.
  RouterBackward* router = nullptr;
  Schedule* schedule = nullptr;
};
// Computes the gradients. Those of low-rank corrections are added to the gradients of their parameters.
SOME_OP(void, experts_backward, (Context & ctx, const ExpertsBackward& in), (ctx, in))

// Sums the rows of a token's routing slots: y[t] = sum_i gate[t,i] * rows[place[t,i]], or adds this to y; gates null:
// all are 1. rows: [N, w], y: [T, w] compute; place: i32 [T, k].
SOME_OP(void, combine_rows,
        (Context & ctx, const Tensor& rows, const Tensor& place, const Tensor* gates, Into into, Tensor& y),
        (ctx, rows, place, gates, into, y))

}  // namespace some
