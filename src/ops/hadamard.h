// Mixture-of-experts operations for experts whose matrices are Hadamard transforms with random signs (spec 3, "Hadamard
// experts"; ops/hadamard_experts.h). No matrix and no dispatch plan exists: each token applies the transforms of its
// experts. An expert's activations w1[e] x are recomputed in the backward pass, which costs less than storing them.
//
// The order of additions within a transform is free. Every sum over tokens has a fixed order without floating-point
// atomics: results are bit-identical for equal inputs, and on the CPU for any number of threads. A GPU may support
// limited sizes; it must refuse others with Code::size_unsupported.
#pragma once

#include "ops/experts.h"
#include "ops/hadamard_experts.h"
#include "ops/linear.h"
#include "ops/modulate.h"
#include "runtime/op.h"

namespace some {

// Additive experts (some.output_proj = "none", "linear", "features"): y[t] = sum_i gate[t,i] * w2 GELU(w1 x[t]) ([T,
// d]), or sum_i gate[t,i] * GELU(w1 x[t]) ([T, f]) if the experts have no w2. x: [T, d] compute; indices: i32 [T, k];
// gates: [T, k] master; y: compute, overwritten.
SOME_OP(void, hadamard_experts_forward,
        (Context & ctx, const Tensor& x, const HadamardExperts& experts, const Tensor& indices, const Tensor& gates,
         Tensor& y),
        (ctx, x, experts, indices, gates, y))

struct HadamardExpertsBackward {
  const Tensor &dy, &x;  // dy: [T, d], or [T, f] without w2; compute
  const HadamardExperts& experts;
  const Tensor &indices, &gates;
  Tensor& dx;                        // [T, d] compute, overwritten or added to
  Into into;                         // applies to dx
  Tensor& dgates;                    // [T, k] master, overwritten
  RouterBackward* router = nullptr;  // as in ExpertsBackward (ops/experts.h)
};
SOME_OP(void, hadamard_experts_backward, (Context & ctx, const HadamardExpertsBackward& in), (ctx, in))

// Experts that modulate, as modulate_forward and modulate_backward (ops/modulate.h), token shift included, with
// in.hadamard in place of in.w1 and in.plan, which are not read. All experts read in.states, also without token shift
// (then row t).
//
// v: [T, f] compute, kept for the backward pass: V = in.scale * sum_i gate_i * gains[e_i] * (w1[e_i] x') or, on a GPU
// if additive, z + V, from which alone dz and dV follow. Written if allocated; the model allocates it in
// training if hadamard_keeps_modulation is true, and then passes it to the backward pass.
SOME_OP(bool, hadamard_keeps_modulation, (Context & ctx), (ctx))
// Columns with which hidden, v, h, dh and dhidden should be allocated, all alike: at least f. What is in the others
// does not matter.
SOME_OP(std::int64_t, hadamard_modulate_width, (Context & ctx, const HadamardExperts& experts), (ctx, experts))
SOME_OP(void, hadamard_modulate_forward, (Context & ctx, const Modulation& in, Tensor& v, Tensor& h), (ctx, in, v, h))

// Sorts the routing slots by expert, which the gains' gradient needs on a GPU, for in.plan of
// hadamard_modulate_backward. It depends on nothing but the routing, so it may run concurrently with what precedes the
// backward pass of a block. Empty on the CPU, or if the gains have no gradient.
SOME_OP(DispatchPlan, hadamard_modulate_plan, (Context & ctx, const Modulation& in), (ctx, in))
// in.plan: from hadamard_modulate_plan, or empty. schedule: for the gradient of the gains, which may run concurrently
// with later work: the caller joins it before it reads that gradient, and before it changes or releases dh, dhidden,
// what `in` refers to, or the scratch memory taken here. null: nothing runs concurrently.
// dh [T, f] compute may be overwritten. v: from the forward pass, or empty. dhidden [T, f] compute and dgates [T, k]
// master are overwritten; in.gains.grad ([E, f] master, may be empty) and dstates ([T, d] compute) are ADDED to. rows
// must come from conv_rows.
SOME_OP(void, hadamard_modulate_backward,
        (Context & ctx, Tensor& dh, const Modulation& in, const Tensor& v, Tensor& dhidden, Tensor& dstates,
         Tensor& dgates, Schedule* schedule = nullptr),
        (ctx, dh, in, v, dhidden, dstates, dgates, schedule))

}  // namespace some
