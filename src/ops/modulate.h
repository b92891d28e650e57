// Modulated hidden layer: experts multiply or shift the hidden layer of a dense feed-forward block (spec 3.9). h =
// GELU(z) (1 + V), or GELU(z + V), with V = scale * sum_i gate_i * gains[e_i] * (w1[e_i] x), element by element. Below,
// w1[e_i] x is called an expert's activation.
#pragma once

#include "ops/experts.h"
#include "ops/route.h"
#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

struct Modulation {
  Tensor hidden;        // z: [T, f] compute
  Tensor states;        // [R, d] compute: hidden states that the experts read
  int token_shift = 0;  // n > 0: expert e reads the state 1 + e mod n tokens earlier, 0 if there is none; 0: states[t]
  Tensor rows;          // i32 [T, n + 1], n >= token_shift (ops/conv.h); not read if token_shift is 0
  Tensor w1;            // [E, f, d] compute; empty: the activations are 1 and only the gains are used
  DispatchPlan plan;
  Routing routing;  // indices and gates, [T, k]
  Param gains;      // [E, f]
  double scale = 1;
  bool additive = false;       // V is inside the GELU
  HadamardExperts hadamard{};  // in place of w1 and plan in ops/hadamard.h
};

// Computes h: [T, f] compute. pre: [T*k, f] compute, in plan order: the experts' activations, kept for the backward
// pass (empty if the experts have no matrices). Without w1, pre is an input: activations computed by other ranks.
SOME_OP(void, modulate_forward, (Context & ctx, const Modulation& in, Tensor& pre, Tensor& h), (ctx, in, pre, h))

// Computes the gradients; rows must come from conv_rows. dh [T, f] compute becomes the gradient of V, and pre the
// gradient of the experts' activations. dhidden [T, f] compute and dgates [T, k] master are overwritten; in.gains.grad
// and dstates [T, d] compute are ADDED to, as is grads->w1 if the experts are trained (grads may be null). Without w1
// nothing is added to dstates.
SOME_OP(void, modulate_backward,
        (Context & ctx, Tensor& dh, const Modulation& in, Tensor& pre, Tensor& dhidden, Tensor& dstates, Tensor& dgates,
         ExpertGrads* grads),
        (ctx, dh, in, pre, dhidden, dstates, dgates, grads))

// The experts' parts of the two above, for a rank that has experts but not the hidden layer. They read only states,
// rows, w1, plan and routing of `in`. pre is set to the experts' activations.
SOME_OP(void, modulate_experts_forward, (Context & ctx, const Modulation& in, Tensor& pre), (ctx, in, pre))
// dpre [T*k, f]: gradient of the experts' activations; dstates and grads as above.
SOME_OP(void, modulate_experts_backward,
        (Context & ctx, const Modulation& in, const Tensor& dpre, Tensor& dstates, ExpertGrads* grads),
        (ctx, in, dpre, dstates, grads))
// The last part of modulate_experts_backward: adds one row per routing slot ([T*k, d] compute, in plan order) to the
// state that the slot's expert has read.
SOME_OP(void, scatter_add_states, (Context & ctx, const Modulation& in, const Tensor& rows, Tensor& dstates),
        (ctx, in, rows, dstates))

}  // namespace some
