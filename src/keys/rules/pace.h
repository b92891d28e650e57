// Which layers learn, when, and from which positions (spec 4, the switches).
#pragma once

#include <vector>

#include "keys/rules/rule.h"

namespace some {

struct PaceRule : Rule<PaceRule> {
  struct Settings {
    std::vector<int> frozen_layers;  // study D2
    std::int64_t update_every = 1;
    double update_fraction = 1.0;
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    bool learns = true;  // otherwise the layer is only counted
    double fraction = 1.0;
    RandomStream stream;  // of this step and layer
    bool operator==(const Plan&) const = default;

    // position: the number of the row among the step's positions.
    SOME_HD bool takes_part(std::int64_t position) const {
      return fraction >= 1.0 || static_cast<double>(stream.uniform(static_cast<std::uint64_t>(position))) < fraction;
    }
  };
  static void declare(SettingList<Settings>& list);
  static void check(const KeySettings& settings, int layers);
  static Plan plan(const Settings& settings, const UpdateTime& time);
  // Whether sums are collected and keys updated in this step at all.
  static bool due(const Settings& settings, std::int64_t step) { return step % settings.update_every == 0; }
};

}  // namespace some
