// Expert parallelism (train.expert_ranks): each rank of Context::expert_group holds a part of every layer's experts and
// reads its own tokens. In every layer, a token's hidden state is sent to the ranks that hold its experts, and their
// outputs are sent back (all-to-all dispatch and combine). Backward, the gradients take the same paths. Everything else
// (queries, keys, gates, sums over a token's experts, the trained layers around them) is computed on the token's rank.
//
// Data flow of a layer, between a rank's own tokens (left) and its experts (right, for the tokens of all ranks):
//   forward   assignments with their gates              ->  the rank's own dispatch plan
//             a state, once per rank that needs it      ->  input of each assignment's expert
//             y = sum of gate * output                  <-  output per assignment, unweighted
//   backward  dy, once per rank                         ->  gradients of trained experts, which stay here
//             dx += rows of its assignments, and dgates <-  contribution of each assignment to both
// Each output is sent back separately and summed on the token's rank in the order of the assignments, so results equal
// those of one rank.
//
// All functions are collective: the ranks of the group make the same passes at the same time, and a rank without
// remaining tokens serves the others (Model::serve_pass).
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "ops/experts.h"
#include "ops/modulate.h"
#include "ops/route.h"
#include "runtime/context.h"

namespace some {

// Rows that one layer sent and received in a pass, allocated from the arena.
struct ExpertParallelTape {
  // Counts by rank, of sent and of received rows. An assignment is one (token, expert) pair.
  std::vector<std::int64_t> rows_out, rows_in, choices_out, choices_in;
  // Sent assignments are ordered by destination rank, and within a rank by their index.
  Tensor rows;   // i32: indices of the states to send, in sending order; -1: a row of zeros
  Tensor place;  // i32 [T, k]: position of each assignment among the sent ones, where its output is returned
  // Received assignments, ordered by source rank.
  Tensor request_rows;  // i32 [M]: the received row that each assignment's expert reads
  Tensor experts;       // i32 [M, 1]: index of the expert on this rank
  Tensor gates;         // master [M, 1]
  Tensor inputs;        // compute [M, d]: inputs of the experts; kept only if they are trained
  DispatchPlan plan;    // of the received assignments
  ExpertTape choices;   // of the received assignments
  std::int64_t arrived() const { return request_rows.elements(); }
};

// True if the experts of each layer are divided among ranks.
inline bool uses_expert_parallelism(const Context& ctx, const ModelConfig& config) {
  return !ctx.expert_group.alone() && config.ffn == Ffn::some && config.use_library && !config.has_transforms();
}

// Sends the assignments to the ranks that hold their experts. past: as in ops/modulate.h.
ExpertParallelTape expert_parallel_dispatch(Context& ctx, const ModelConfig& config, const Routing& routing,
                                            const Tensor& past);

// Results of the forward pass that the backward pass needs.
struct ExpertParallelKeeps {
  bool inputs = false;   // set if the experts are trained
  bool outputs = false;  // ExpertTape
};

// Computes what experts_forward and experts_backward (ops/experts.h) compute. `weights` and `grads` belong to the
// experts of this rank; seen, mixed and the gradients to its tokens.
void expert_parallel_forward(Context& ctx, const ExpertWeights& weights, const ExpertParallelKeeps& keeps,
                             const Tensor& seen, const Routing& routing, ExpertParallelTape& tape, Tensor& mixed);
void expert_parallel_backward(Context& ctx, const Tensor& dmixed, const ExpertWeights& weights,
                              ExpertParallelTape& tape, Tensor& dseen, Into into, Tensor& dgates, ExpertGrads* grads);

// Computes what modulate_experts_forward and modulate_experts_backward (ops/modulate.h) compute. `in`: of this rank's
// tokens, without w1.
void expert_parallel_modulation_forward(Context& ctx, const Modulation& in, const Tensor& w1,
                                        const ExpertParallelKeeps& keeps, ExpertParallelTape& tape, Tensor& pre);
void expert_parallel_modulation_backward(Context& ctx, const Modulation& in, const Tensor& w1, const Tensor& dpre,
                                         ExpertParallelTape& tape, Tensor& dstates, ExpertGrads* grads);

}  // namespace some
