// Experts that modulate a trained hidden layer (spec 3.9): h = GELU(z) (1 + V), or GELU(z + V), with
// V = scale * sum_i gate_i * gains[e_i] * (w1[e_i] x), element by element.
#pragma once

#include "ops/experts.h"
#include "ops/route.h"
#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

struct Modulation {
  Tensor hidden;        // z: [T, f] compute
  Tensor states;        // [R, d] compute: what the experts see
  int token_shift = 0;  // expert e sees the state 1 + e mod listen tokens before, 0 where there is none; 0: states[t]
  Tensor rows;          // i32 [T, n + 1], n >= listen (ops/conv.h); not read without listening
  Tensor w1;            // [E, f, d] compute; empty: each expert says 1 and the gains are all there is
  DispatchPlan plan;
  Routing routing;  // indices and gates, [T, k]
  Param gains;      // [E, f]
  double scale = 1;
  bool additive = false;  // V stands additive the GELU
};

// pre [T*k, f] compute, in plan order: what the experts said, kept for the backward pass (empty where they have no
// matrices). Without w1 it is what others had them say. h: [T, f] compute.
SOME_OP(void, modulate_forward, (Context & ctx, const Modulation& in, Tensor& pre, Tensor& h), (ctx, in, pre, h))

// For rows of conv_rows. dh [T, f] compute becomes the gradient of V, pre that of what the experts said. dhidden [T, f]
// compute and dgates [T, k] master are overwritten; in.gains.grad and dstates [T, d] compute are ADDED to, as is
// grads->w1 where the experts learn (grads may be null). Without w1 nothing is added to dstates.
SOME_OP(void, modulate_backward,
        (Context & ctx, Tensor& dh, const Modulation& in, Tensor& pre, Tensor& dhidden, Tensor& dstates, Tensor& dgates,
         ExpertGrads* grads),
        (ctx, dh, in, pre, dhidden, dstates, dgates, grads))

// The experts' parts of the two above, for a rank that has experts but not the hidden layer: they read states, rows,
// w1, plan and routing of `in`, no more. pre becomes what the experts say.
SOME_OP(void, modulate_experts_forward, (Context & ctx, const Modulation& in, Tensor& pre), (ctx, in, pre))
// dpre [T*k, f]: the gradient of what they said; dstates and grads as above.
SOME_OP(void, modulate_experts_backward,
        (Context & ctx, const Modulation& in, const Tensor& dpre, Tensor& dstates, ExpertGrads* grads),
        (ctx, in, dpre, dstates, grads))
// And the last part of that: one row for each choice ([T*k, d] compute, in plan order), added to the state it came
// from.
SOME_OP(void, scatter_add_states, (Context & ctx, const Modulation& in, const Tensor& rows, Tensor& dstates),
        (ctx, in, rows, dstates))

}  // namespace some
