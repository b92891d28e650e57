// The key store of one layer: its state, the additive sums of a step, and the update (spec 4). What both devices must
// agree on beyond the formulas (which positions are drawn, how ties and special cases go) stands in keys/rules.h.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"
#include "base/rooms.h"
#include "keys/settings.h"
#include "ops/op.h"
#include "ops/route.h"

namespace some::keys {

struct KeyState {
  Tensor keys;     // [E, d] master
  Tensor usage;    // [E] master
  Tensor mass;     // [E] master
  Tensor average;  // [E, d] master: the running mean routed by when key_ema > 0; empty otherwise
  Tensor counts;   // i64 [4] on the device: births so far, deaths so far, deaths in the last update, position count of
                   // the last update
  std::int64_t steps = 0;  // s; host
  const Tensor& routing_keys() const { return average ? average : keys; }
};

// Keys are rows of N(0,1), normalised, from random_stream(seed, "layers.<layer>.keys"); drawn in double, rounded once.
KeyState make_key_state(Context& ctx, int experts, int query_size, std::uint64_t seed, int layer,
                        const KeySettings& settings);

// The step's contribution. Sums over tokens, micro-batches and ranks simply add.
struct KeySums {
  Tensor slot_counts;  // i32 [E, k]: n[e,i]
  Tensor gate_sums;    // master [E]: w[e]
  Tensor query_sums;   // master [E, k, d]: Q[e,i]
  Tensor together;     // i32 [E, E]: C[e,f], symmetric, zero diagonal
  Tensor positions;    // i64 [1]: P, positions that took part
  // For rebirth: the queries of the E positions with the smallest random priority among those that took part, smallest
  // first (only when respawn_threshold > 0). The smallest of a union is the smallest of the parts, so these merge like
  // sums do.
  Tensor sample_priority;  // i64 [E]; INT64_MAX where there is none
  Tensor sample_queries;   // master [E, d]
};

KeySums make_key_sums(Context& ctx, int experts, int top_k, int query_size, bool with_sample);
// Of any number of layers at once, as are the two below: on a GPU each layer is little work, and a launch takes as
// long.
SOME_OP(void, clear_key_sums, (Context & ctx, std::span<KeySums> layers), (ctx, layers))
inline void clear_key_sums(Context& ctx, KeySums& sums) { clear_key_sums(ctx, std::span(&sums, 1)); }

struct SumOptions {
  double fraction = 1.0;            // update_fraction: position p takes part when stream.uniform(p) < fraction
  RandomStream stream;              // of this step and layer: random_stream(seed, "keys.<layer>.<step>")
  std::int64_t first_position = 0;  // number of the first row of this micro-batch among the step's positions
};

// One layer's queries and choices, and where they are added up.
struct LayerChoices {
  Tensor query;     // [T, d] master
  Routing routing;  // k' columns, k' <= k
  SumOptions options;
  KeySums* sums = nullptr;
};

// Adds the rows whose targets[t] >= 0 (every row when targets is null). The layers have equal shapes.
SOME_OP(void, add_key_sums, (Context & ctx, std::span<const LayerChoices> layers, const Tensor* targets),
        (ctx, layers, targets))
inline void add_key_sums(Context& ctx, const Tensor& query, const Routing& routing, const Tensor* targets,
                         const SumOptions& options, KeySums& sums) {
  const LayerChoices one{query, routing, options, &sums};
  add_key_sums(ctx, std::span(&one, 1), targets);
}

struct UpdateOptions {
  double beta = 0.0;    // beta * annealing(step) * beta_layer_scale[layer]: already multiplied
  RandomStream stream;  // for the noise of rebirth: random_stream(seed, "phoenix.<layer>.<step>")
};

struct LayerUpdate {
  KeyState* state = nullptr;
  const KeySums* sums = nullptr;
  UpdateOptions options;
};

// The update of spec 4, in its order; each state.steps is incremented. Nothing else happens to a layer in which no
// position took part. The layers have equal shapes.
SOME_OP(void, update_keys, (Context & ctx, std::span<const LayerUpdate> layers, const KeySettings& settings),
        (ctx, layers, settings))
inline void update_keys(Context& ctx, KeyState& state, const KeySums& sums, const KeySettings& settings,
                        const UpdateOptions& options) {
  const LayerUpdate one{&state, &sums, options};
  update_keys(ctx, std::span(&one, 1), settings);
}

}  // namespace some::keys
