// The key store of one layer: its state, the additive sums of a step, and the update (spec 4). The rules of the update
// are in keys/rules/rules.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "keys/settings.h"
#include "ops/route.h"
#include "runtime/op.h"

namespace some {

struct KeyState : Rules::States {
  Tensor keys;    // [E, size] master
  Tensor usage;   // [E] master
  Tensor mass;    // [E] master
  Tensor counts;  // i64 [4] on the device: keys reborn so far, dead keys found so far, dead keys found in the last
                  // update, positions of the last update. If no position took part, the last two become 0 and nothing
                  // else changes but steps
  std::int64_t steps = 0;  // number of updates, s; on the host
  const Tensor& routing_keys() const { return average ? average : keys; }
  const Tensor* routing_bias() const { return choice_bias ? &choice_bias : nullptr; }
};

// Returns keys with rows from N(0,1), normalized, from random_stream(seed, "layers.<layer>.keys"); drawn in double and
// rounded once. With several partitions (ops/route.h), a row from "layers.<layer>.key_partitions" is added to all keys
// of a partition before they are normalized.
KeyState make_key_state(Context& ctx, int experts, int query_size, std::uint64_t seed, int layer,
                        const KeySettings& settings, int partitions = 1);
// Adds missing tensors that the settings require, and drops those that they do not use.
void fit_key_state(const KeySettings& settings, KeyState& state);
// Calls visit(name, tensor) for every persistent tensor, with its name in checkpoints.
void visit_key_state(KeyState& state, const std::function<void(const std::string& name, Tensor& tensor)>& visit);

// Additive sums of one step. Sums over tokens, micro-batches and ranks are simply added.
struct KeySums {
  Tensor slot_counts;  // i32 [E, k]: n[e,i]
  Tensor gate_sums;    // master [E]: w[e]
  Tensor positions;    // i64 [1]: P, number of positions that took part
  // Only if a rule needs them (Needs).
  Tensor query_sums;  // master [E, k, size]: Q[e,i]
  Tensor together;    // i32 [E, E]: C[e,f], symmetric, zero diagonal
  // Sample for rebirth: the queries of the E participating positions with the smallest random priority, in ascending
  // order. The smallest of a union are among the smallest of its parts, so samples can be merged like sums.
  Tensor sample_priority;  // i64 [E]; INT64_MAX for unused places
  Tensor sample_queries;   // master [E, size]
};

KeySums make_key_sums(Context& ctx, int experts, int top_k, int query_size, const Needs& needs);
// Returns the bytes of a layer's state and sums, with four bytes per number.
double key_store_bytes(int experts, int top_k, int query_size, const KeySettings& settings);
// The next three functions handle several layers per call: on a GPU the work of one layer takes about as long as a
// kernel launch.
SOME_OP(void, clear_key_sums, (Context & ctx, std::span<KeySums> layers), (ctx, layers))
inline void clear_key_sums(Context& ctx, KeySums& sums) { clear_key_sums(ctx, std::span(&sums, 1)); }

// Queries and expert choices of one layer, and the sums they are added to.
struct LayerChoices {
  Tensor query;     // [T, size] master
  Routing routing;  // k' columns, k' <= k
  KeyPlan plan;
  std::int64_t first_position = 0;  // index of the first row of this micro-batch among the step's positions
  KeySums* sums = nullptr;
};

// Adds the rows with targets[t] >= 0 (all rows if targets is null). All layers must have the same shapes and needs.
SOME_OP(void, add_key_sums, (Context & ctx, std::span<const LayerChoices> layers, const Tensor* targets),
        (ctx, layers, targets))
inline void add_key_sums(Context& ctx, const LayerChoices& layer, const Tensor* targets) {
  add_key_sums(ctx, std::span(&layer, 1), targets);
}
// Adds the sums of earlier micro-batches of the step, or of lower ranks. All sums must have the same shapes.
void merge_key_sums(Context& ctx, std::span<const KeySums> earlier, std::span<KeySums> sums);
// Merges two samples: keeps the smallest priorities of two ascending lists; ties go to the earlier list.
SOME_OP(void, merge_samples, (Context & ctx, const KeySums& earlier, KeySums& sums), (ctx, earlier, sums))
// Returns the sums of one layer that are plain additions, without those that are not collected.
std::vector<Tensor> additive_sums(const KeySums& sums);
// Throws if the layers do not match or lack a sum that their plans need.
void check_key_choices(std::span<const LayerChoices> layers, const Tensor* targets);

struct LayerUpdate {
  KeyState* state = nullptr;
  const KeySums* sums = nullptr;
  KeyPlan plan;
};

// Applies the update of spec 4, in its order, and increments each state.steps. A layer in which no position took part
// changes in no other way. All layers must have the same shapes, and all must be updated (KeyPlan::learns).
SOME_OP(void, update_keys, (Context & ctx, std::span<const LayerUpdate> layers), (ctx, layers))
inline void update_keys(Context& ctx, KeyState& state, const KeySums& sums, const KeyPlan& plan) {
  const LayerUpdate one{&state, &sums, plan};
  update_keys(ctx, std::span(&one, 1));
}

}  // namespace some
