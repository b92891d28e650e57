// Attracts each key to the queries that chose it (spec 4.3), one top-k rank after another: alpha.
#pragma once

#include "keys/rules/rule.h"

namespace some {

struct AttractionRule : Rule<AttractionRule> {
  struct Settings {
    double alpha = 0.01;
    bool use_alpha = true;
    double alpha_floor = 0.0;
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    bool acts = false;
    double alpha = 0, floor = 0;
    bool operator==(const Plan&) const = default;
  };
  static constexpr const char* name = "alpha";
  static constexpr const char* words = "attraction";
  static constexpr auto switched = &Settings::use_alpha;

  static void declare(SettingList<Settings>& list);
  static Needs needs(const Settings& settings) { return {.query_sums = settings.use_alpha}; }
  static Plan plan(const Settings& settings, const UpdateTime&) {
    if (!settings.use_alpha) return {};
    return {true, settings.alpha, settings.alpha_floor};
  }

  template <typename K>
  SOME_HD static void move(const K& key) {
    const Plan& plan = key.layer.plan;
    if (!plan.acts) return;
    const auto& layer = key.layer;
    const double a = fmax(plan.alpha / (1.0 + static_cast<double>(layer.usage[key.expert])), plan.floor);
    const std::int32_t* counts = layer.slot_counts + key.expert * layer.top_k;
    const auto* sums = layer.query_sums + key.expert * layer.top_k * layer.size;
    key.lanes.each(layer.size, [&](std::int64_t j) {
      double value = key.row[j];
      SOME_UNROLL_4
      for (std::int64_t i = 0; i < layer.top_k; ++i) {
        const double n = key.factor * counts[i], sum = key.factor * static_cast<double>(sums[i * layer.size + j]);
        if (counts[i] != 0) value += a * (sum - n * value);
      }
      key.row[j] = value;
    });
  }
};

}  // namespace some
