// Phoenix: rebirth of dead keys (spec 4.9), whose length fell below a threshold. The dead keys, in ascending expert
// order, take the queries of the sampled positions, in ascending priority; nothing is reborn if there are fewer
// positions than dead keys. The running mean of a reborn key restarts at the new key; otherwise routing would find the
// expert at its old place for as long as the mean remembers it. KeyState::counts: [0] += reborn keys, [1] += dead keys,
// [2] = dead keys of this update.
#pragma once

#include "keys/rules/key_ema.h"
#include "keys/rules/rule.h"

namespace some {

// Returns the random priority of a position, in [0, INT64_MAX - 1]; the E participating positions with the smallest
// priorities are sampled, ties go to the earlier position. Uses Philox blocks that uniform() does not use.
SOME_HD inline std::int64_t sample_priority(const RandomStream& stream, std::int64_t position) {
  const Philox block = philox(stream.key, static_cast<std::uint64_t>(position), 1);
  const std::uint64_t bits = (static_cast<std::uint64_t>(block.v[1]) << 32 | block.v[0]) >> 1;
  const std::uint64_t largest = 0x7FFFFFFFFFFFFFFEull;
  return static_cast<std::int64_t>(bits < largest ? bits : largest);
}
inline constexpr std::int64_t kNoSample = 0x7FFFFFFFFFFFFFFFll;

struct PhoenixRule : Rule<PhoenixRule> {
  struct Settings {
    double respawn_threshold = 0.0;  // 0: never
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    double threshold = 0;
    RandomStream sample, noise;  // of this step and layer
    bool operator==(const Plan&) const = default;
  };
  template <typename T>
  struct Memory {
    double* lengths;  // [E]: lengths of the stored keys
  };
  static void declare(SettingList<Settings>& list);
  static void check(const KeySettings& settings, int layers);
  static Needs needs(const Settings& settings) { return {.sample = settings.respawn_threshold > 0.0}; }
  static Plan plan(const Settings& settings, const UpdateTime& time);
  template <typename T>
  static Memory<T> memory(Context& ctx, const State&, const Plan& plan, std::int64_t experts) {
    return {acts_after(plan) ? ctx.scratch({experts}, DType::f64).template data<double>() : nullptr};
  }

  SOME_HD static bool acts_after(const Plan& plan) { return plan.threshold > 0.0; }

  template <typename K>
  SOME_HD static void refine(const K& key) {
    if (!acts_after(key.layer.plan)) return;
    const double length = key.length();
    if (key.lanes.first()) key.layer.lengths[key.expert] = length;
  }

  template <typename K>
  SOME_HD static void after(const K& key) {
    const Plan& plan = key.layer.plan;
    if (!acts_after(plan)) return;
    const auto& layer = key.layer;
    const auto dead = [&](std::int64_t e) { return layer.lengths[e] < plan.threshold; };
    if (key.expert != 0 && !dead(key.expert)) return;
    const std::int64_t deaths = key.lanes.count(layer.experts, dead), before = key.lanes.count(key.expert, dead);
    const bool enough = deaths <= layer.positions[0];
    if (key.expert == 0 && key.lanes.first()) {
      layer.counts[1] += deaths;
      layer.counts[2] = deaths;
      if (enough) layer.counts[0] += deaths;
    }
    if (!enough || !dead(key.expert)) return;
    const std::int64_t first = key.expert * layer.size;
    key.lanes.each(layer.size, [&](std::int64_t j) {
      // N(0, 0.01^2)
      const double noise = 0.01 * static_cast<double>(plan.noise.normal(static_cast<std::uint64_t>(first + j)));
      key.row[j] = static_cast<double>(layer.sample_queries[before * layer.size + j]) + noise;
    });
    key.scale(1.0 / fmax(key.length(), kSmallestLength));
    key.lanes.each(layer.size, [&](std::int64_t j) {
      using T = std::remove_reference_t<decltype(layer.keys[0])>;
      layer.keys[first + j] = static_cast<T>(key.row[j]);
      if (layer.average != nullptr) layer.average[first + j] = static_cast<T>(key.row[j]);
    });
    if (!key.lanes.first()) return;
    layer.usage[key.expert] = layer.mass[key.expert] = 0;
    if (layer.choice_bias != nullptr) layer.choice_bias[key.expert] = 0;
  }
};

}  // namespace some
