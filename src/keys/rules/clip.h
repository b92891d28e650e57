// Limits the distance that a key moves in one update (spec 4.5).
#pragma once

#include "keys/rules/rule.h"

namespace some {

struct ClipRule : Rule<ClipRule> {
  struct Settings {
    double clip_delta = 0.0;  // 0: no limit
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    double longest = 0;
    bool operator==(const Plan&) const = default;
  };
  static void declare(SettingList<Settings>& list);
  static Plan plan(const Settings& settings, const UpdateTime&) { return {settings.clip_delta}; }

  template <typename K>
  SOME_HD static void finish(const K& key) {
    const Plan& plan = key.layer.plan;
    if (!(plan.longest > 0.0)) return;
    const auto* before = key.layer.keys + key.expert * key.layer.size;  // before attraction (4.3)
    const double moved = sqrt(key.lanes.sum(
        key.layer.size, [&](std::int64_t j) { return (key.row[j] - before[j]) * (key.row[j] - before[j]); }));
    if (moved <= plan.longest) return;
    const double shorter = plan.longest / moved;
    key.lanes.each(key.layer.size,
                   [&](std::int64_t j) { key.row[j] = before[j] + (key.row[j] - before[j]) * shorter; });
  }
};

}  // namespace some
