// The key store of one layer: its state, the additive sums of a step, and the update (spec 4). The update itself is
// made of rules (keys/rules/rules.h).
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
  Tensor counts;  // i64 [4] on the device: births so far, deaths so far, deaths in the last update, positions of the
                  // last update. When no position took part, the last two become 0 and nothing else changes but steps
  std::int64_t steps = 0;  // s; host
  const Tensor& routing_keys() const { return average ? average : keys; }
  const Tensor* routing_bias() const { return choice_bias ? &choice_bias : nullptr; }
};

// Keys are rows of N(0,1), normalised, from random_stream(seed, "layers.<layer>.keys"); drawn in double, rounded once.
KeyState make_key_state(Context& ctx, int experts, int query_size, std::uint64_t seed, int layer,
                        const KeySettings& settings);
// Adds to the state what these settings need and it lacks, and drops what they do not use.
void fit_key_state(const KeySettings& settings, KeyState& state);
// Calls visit(name, tensor) for every tensor that outlives an update, by its name in checkpoints.
void visit_key_state(KeyState& state, const std::function<void(const std::string& name, Tensor& tensor)>& visit);

// The step's contribution. Sums over tokens, micro-batches and ranks simply add.
struct KeySums {
  Tensor slot_counts;  // i32 [E, k]: n[e,i]
  Tensor gate_sums;    // master [E]: w[e]
  Tensor positions;    // i64 [1]: P, positions that took part
  // Only where a rule needs them (Needs).
  Tensor query_sums;  // master [E, k, size]: Q[e,i]
  Tensor together;    // i32 [E, E]: C[e,f], symmetric, zero diagonal
  // For rebirth: the queries of the E positions with the smallest random priority among those that took part, smallest
  // first. The smallest of a union is the smallest of the parts, so these merge like sums do.
  Tensor sample_priority;  // i64 [E]; INT64_MAX where there is none
  Tensor sample_queries;   // master [E, size]
};

KeySums make_key_sums(Context& ctx, int experts, int top_k, int query_size, const Needs& needs);
// Bytes of a layer's state and sums, with numbers of four bytes.
double key_store_bytes(int experts, int top_k, int query_size, const KeySettings& settings);
// These three take any number of layers at once: on a GPU one layer is little work, and its launch would take as long
// as the work.
SOME_OP(void, clear_key_sums, (Context & ctx, std::span<KeySums> layers), (ctx, layers))
inline void clear_key_sums(Context& ctx, KeySums& sums) { clear_key_sums(ctx, std::span(&sums, 1)); }

// One layer's queries and choices, and where they are added up.
struct LayerChoices {
  Tensor query;     // [T, size] master
  Routing routing;  // k' columns, k' <= k
  KeyPlan plan;
  std::int64_t first_position = 0;  // number of the first row of this micro-batch among the step's positions
  KeySums* sums = nullptr;
};

// Adds the rows whose targets[t] >= 0 (every row when targets is null). The layers have equal shapes and needs.
SOME_OP(void, add_key_sums, (Context & ctx, std::span<const LayerChoices> layers, const Tensor* targets),
        (ctx, layers, targets))
inline void add_key_sums(Context& ctx, const LayerChoices& layer, const Tensor* targets) {
  add_key_sums(ctx, std::span(&layer, 1), targets);
}
// Adds what earlier micro-batches of the step, or ranks before this one, have added up. The sums have equal shapes.
void merge_key_sums(Context& ctx, std::span<const KeySums> earlier, std::span<KeySums> sums);
// The part of it that is no addition: of two samples, each smallest first, the smallest; of equal ones the earlier's.
SOME_OP(void, merge_samples, (Context & ctx, const KeySums& earlier, KeySums& sums), (ctx, earlier, sums))
// The sums of one layer that simply add; those that are not kept are left out.
std::vector<Tensor> additive_sums(const KeySums& sums);
// Throws where the layers do not fit together or lack a sum their plans need.
void check_key_choices(std::span<const LayerChoices> layers, const Tensor* targets);

struct LayerUpdate {
  KeyState* state = nullptr;
  const KeySums* sums = nullptr;
  KeyPlan plan;
};

// The update of spec 4, in its order; each state.steps is incremented. Nothing else happens to a layer in which no
// position took part. The layers have equal shapes, and all of them learn.
SOME_OP(void, update_keys, (Context & ctx, std::span<const LayerUpdate> layers), (ctx, layers))
inline void update_keys(Context& ctx, KeyState& state, const KeySums& sums, const KeyPlan& plan) {
  const LayerUpdate one{&state, &sums, plan};
  update_keys(ctx, std::span(&one, 1));
}

}  // namespace some
