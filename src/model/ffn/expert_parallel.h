// Expert parallelism (train.expert_ranks): each rank of Context::expert_group has a part of every layer's experts and
// reads tokens of its own. In every layer a token's state is sent to the ranks that have its experts, and their outputs
// are sent back; backward the gradients go the same ways. Everything else (queries, keys, gates, sums over a token's
// experts, the trained layers around them) stays where the token is.
//
// The walk of a layer, from a rank's own tokens (left) to the experts it has (right, from the tokens of all):
//   forward   who chose whom, with which gate           ->  a dispatch plan of its own
//             a state, once to each rank that needs it  ->  what each choice's expert is shown
//             y = sum of gate * output                  <-  each choice's output, not weighted
//   backward  dy, once to each rank                     ->  gradients of the experts that learn: they stay here
//             dx += its choices' rows, and dgates       <-  each choice's part of both
// Each output is sent back separately and added up where the token is, in the order of its choices: as on one rank.
//
// All of it is collective: the ranks of the group make the same passes at the same time, and one that has no tokens
// left serves the others (Model::serve_pass).
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "ops/experts.h"
#include "ops/modulate.h"
#include "ops/route.h"
#include "runtime/context.h"

namespace some {

// Rows that one layer sent and received in a pass. Memory comes from the arena.
struct ExpertParallelTape {
  // By rank: of the tokens here, and of those that came. A choice is one (token, expert).
  std::vector<std::int64_t> rows_out, rows_in, choices_out, choices_in;
  // Choices leave in the order of the ranks they go to, and for one rank in their own.
  Tensor rows;   // i32: which of the states leave, in that order; -1: a row of zeros
  Tensor place;  // i32 [T, k]: where among those that leave a choice is; there its answer is found later
  // Choices that came, in the order of the ranks they came from.
  Tensor shown;        // i32 [M]: which of the rows that came a choice's expert is shown
  Tensor experts;      // i32 [M, 1]: which of the experts here
  Tensor gates;        // master [M, 1]
  Tensor inputs;       // compute [M, d]: what the experts are shown; kept only where they learn
  DispatchPlan plan;   // of the choices that came
  ExpertTape choices;  // likewise
  std::int64_t arrived() const { return shown.elements(); }
};

// Whether the layers' experts are divided among ranks.
inline bool uses_expert_parallelism(const Context& ctx, const ModelConfig& config) {
  return !ctx.expert_group.alone() && config.ffn == Ffn::some && config.use_library && !config.has_transforms();
}

// Sends the choices to the ranks that have their experts. past: as in ops/modulate.h.
ExpertParallelTape expert_parallel_dispatch(Context& ctx, const ModelConfig& config, const Routing& routing,
                                            const Tensor& past);

// Results of the forward pass that the backward pass needs.
struct ExpertParallelKeeps {
  bool inputs = false;   // the experts learn
  bool outputs = false;  // ExpertTape
};

// The experts of a layer, as experts_forward and experts_backward (ops/experts.h). `weights` and `grads` are those of
// the experts that are here; seen, mixed and the gradients are those of the tokens that are here.
void expert_parallel_forward(Context& ctx, const ExpertWeights& weights, const ExpertParallelKeeps& keeps,
                             const Tensor& seen, const Routing& routing, ExpertParallelTape& tape, Tensor& mixed);
void expert_parallel_backward(Context& ctx, const Tensor& dmixed, const ExpertWeights& weights,
                              ExpertParallelTape& tape, Tensor& dseen, Into into, Tensor& dgates, ExpertGrads* grads);

// Experts that modulate, as modulate_experts_forward and modulate_experts_backward (ops/modulate.h). `in`: of the
// tokens here, without w1.
void expert_parallel_modulation_forward(Context& ctx, const Modulation& in, const Tensor& w1,
                                        const ExpertParallelKeeps& keeps, ExpertParallelTape& tape, Tensor& pre);
void expert_parallel_modulation_backward(Context& ctx, const Modulation& in, const Tensor& w1, const Tensor& dpre,
                                         ExpertParallelTape& tape, Tensor& dstates, ExpertGrads* grads);

}  // namespace some
