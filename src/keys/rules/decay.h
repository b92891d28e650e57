// Shrinks keys of little-used experts (spec 4.7): delta. An expert is little used if its usage is below theta, a fixed
// number or a quantile of the usages above 0. For n used experts in ascending order, the quantile q is at index
// q*(n-1), interpolated linearly. Nothing decays if no expert is used.
#pragma once

#include <algorithm>
#include <vector>

#include "keys/rules/rule.h"

namespace some {

struct DecayRule : Rule<DecayRule> {
  struct Settings {
    double delta = 0.001;
    bool use_delta = true;
    double theta_percentile = 0.05;
    double theta = -1.0;  // at least 0: used instead of the quantile
    std::int64_t decay_warmup = 400;
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    bool acts = false;
    double delta = 0, percentile = 0, theta = -1;
    bool operator==(const Plan&) const = default;
  };
  template <typename T>
  struct Memory {
    double* theta;  // [3]: theta, computed by survey(), and the two usages it lies between
  };
  static constexpr const char* name = "delta";
  static constexpr const char* words = "decay";
  static constexpr auto switched = &Settings::use_delta;

  static void declare(SettingList<Settings>& list);
  static Plan plan(const Settings& settings, const UpdateTime& time) {
    if (!settings.use_delta || time.update <= settings.decay_warmup) return {};
    return {true, settings.delta, settings.theta_percentile, settings.theta};
  }
  template <typename T>
  static Memory<T> memory(Context& ctx, const State&, const Plan&, std::int64_t) {
    return {ctx.scratch({3}, DType::f64).template data<double>()};
  }

  SOME_HD static bool surveys(const Plan& plan) { return plan.acts && plan.theta < 0.0; }

  template <typename Layer, typename Lanes>
  SOME_HD static void survey(const Layer& layer, const Lanes& lanes) {
    const Plan& plan = layer.plan;
    if (!surveys(plan)) return;
    const std::int64_t used = lanes.count(layer.experts, [&](std::int64_t e) { return layer.usage[e] > 0; });
    if (used == 0) {
      if (lanes.first()) layer.theta[0] = 0.0;  // no usage is below it
      return;
    }
    const double place = fmin(fmax(plan.percentile, 0.0), 1.0) * static_cast<double>(used - 1);
    const std::int64_t low = static_cast<std::int64_t>(place), high = low + 1 < used ? low + 1 : used - 1;
    double* const between = layer.theta + 1;
    if constexpr (Lanes::serial) {
      std::vector<double> usages;
      for (std::int64_t e = 0; e < layer.experts; ++e) {
        if (layer.usage[e] > 0) usages.push_back(static_cast<double>(layer.usage[e]));
      }
      std::sort(usages.begin(), usages.end());
      between[0] = usages[static_cast<std::size_t>(low)];
      between[1] = usages[static_cast<std::size_t>(high)];
    } else {
      // An expert's index is the number of experts that come before it.
      lanes.each(layer.experts, [&](std::int64_t e) {
        const auto mine = layer.usage[e];
        if (!(mine > 0)) return;
        std::int64_t before = 0;
        for (std::int64_t f = 0; f < layer.experts; ++f) {
          const auto other = layer.usage[f];
          before += other > 0 && (other < mine || (other == mine && f < e)) ? 1 : 0;
        }
        if (before == low) between[0] = static_cast<double>(mine);
        if (before == high) between[1] = static_cast<double>(mine);
      });
      lanes.wait();
    }
    if (lanes.first()) layer.theta[0] = between[0] + (place - static_cast<double>(low)) * (between[1] - between[0]);
  }

  template <typename K>
  SOME_HD static void finish(const K& key) {
    const Plan& plan = key.layer.plan;
    if (!plan.acts) return;
    const double theta = plan.theta >= 0.0 ? plan.theta : key.layer.theta[0];
    if (static_cast<double>(key.layer.usage[key.expert]) < theta) key.scale(1.0 - plan.delta);
  }
};

}  // namespace some
