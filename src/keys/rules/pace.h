// Selects which layers are updated, when, and from which positions (spec 4, "Switches").
#pragma once

#include <vector>

#include "keys/rules/rule.h"

namespace some {

struct UpdateScheduleRule : Rule<UpdateScheduleRule> {
  struct Settings {
    std::vector<int> frozen_layers;  // study D2
    std::int64_t update_every = 1;
    double update_fraction = 1.0;
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    bool learns = true;  // false: choices of the layer are counted, but nothing is updated
    double fraction = 1.0;
    RandomStream stream;  // of this step and layer
    bool operator==(const Plan&) const = default;

    // position: index of the row among the step's positions.
    SOME_HD bool takes_part(std::int64_t position) const {
      return fraction >= 1.0 || static_cast<double>(stream.uniform(static_cast<std::uint64_t>(position))) < fraction;
    }
  };
  static void declare(SettingList<Settings>& list);
  static void check(const KeySettings& settings, int layers);
  static Plan plan(const Settings& settings, const UpdateTime& time);
  // True if sums are collected and keys updated in this step.
  static bool due(const Settings& settings, std::int64_t step) { return step % settings.update_every == 0; }
};

}  // namespace some
