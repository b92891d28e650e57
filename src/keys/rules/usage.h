// Usage and mass of the experts (spec 4.2): choices, and gate-weighted choices.
#pragma once

#include "keys/rules/rule.h"

namespace some {

enum class Usage { ema, cumulative, flux };

struct UsageRule : Rule<UsageRule> {
  struct Settings {
    Usage usage = Usage::ema;
    double ema_decay = 0.99;
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    bool flux = false;
    double keep = 1, take = 1;
    bool operator==(const Plan&) const = default;
  };
  static void declare(SettingList<Settings>& list);
  static Plan plan(const Settings& settings, const UpdateTime&) {
    if (settings.usage == Usage::cumulative) return {};
    return {settings.usage == Usage::flux, settings.ema_decay, 1.0 - settings.ema_decay};
  }

  // Returns the factor on every sum of the step: E/(P k) for flux, otherwise 1. Computed as E / (sum of all counts),
  // which is the same number and remains right while topk_warmup routes by fewer than k choices. The counts are
  // integers below 2^53: exact in any order.
  template <typename Layer, typename Lanes>
  SOME_HD static double factor(const Layer& layer, const Lanes& lanes) {
    const Plan& plan = layer.plan;
    if (!plan.flux) return 1.0;
    return static_cast<double>(layer.experts) / lanes.sum(layer.experts * layer.top_k, [&](std::int64_t i) {
      return static_cast<double>(layer.slot_counts[i]);
    });
  }

  // Both are rounded before later rules read them.
  template <typename K>
  SOME_HD static void count(const K& key) {
    const Plan& plan = key.layer.plan;
    auto& usage = key.layer.usage[key.expert];
    auto& mass = key.layer.mass[key.expert];
    const double chosen = key.factor * static_cast<double>(key.layer.chosen(key.expert));
    const double gates = key.factor * static_cast<double>(key.layer.gate_sums[key.expert]);
    using T = std::remove_reference_t<decltype(usage)>;
    usage = static_cast<T>(plan.keep * static_cast<double>(usage) + plan.take * chosen);
    mass = static_cast<T>(plan.keep * static_cast<double>(mass) + plan.take * gates);
  }
};

}  // namespace some
