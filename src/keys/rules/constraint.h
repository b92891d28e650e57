// Constrains the length of keys (spec 4.6), before or after decay.
#pragma once

#include "keys/rules/rule.h"

namespace some {

enum class Constraint { normalize, normalize_used, clamp, free };
enum class ConstraintOrder { before_decay, last };

struct ConstraintRule : Rule<ConstraintRule> {
  struct Settings {
    Constraint constraint = Constraint::normalize;
    ConstraintOrder constraint_order = ConstraintOrder::before_decay;
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    Constraint constraint = Constraint::free;
    ConstraintOrder order = ConstraintOrder::before_decay;
    bool operator==(const Plan&) const = default;
  };
  static void declare(SettingList<Settings>& list);
  static Plan plan(const Settings& settings, const UpdateTime&) {
    return {settings.constraint, settings.constraint_order};
  }

  template <typename K>
  SOME_HD static void finish(const K& key) {
    apply(key, ConstraintOrder::before_decay);
  }

  template <typename K>
  SOME_HD static void apply(const K& key, ConstraintOrder now) {
    const Plan& plan = key.layer.plan;
    if (plan.order != now || plan.constraint == Constraint::free) return;
    if (plan.constraint == Constraint::normalize_used && key.layer.chosen(key.expert) == 0) return;
    const double length = key.length();
    if (plan.constraint == Constraint::clamp && length <= 1.0) return;
    key.scale(1.0 / fmax(length, kSmallestLength));
  }
};

// Second entry in the table, for constraint_order = "last".
struct ConstraintLast : Rule<ConstraintLast> {
  template <typename K>
  SOME_HD static void finish(const K& key) {
    ConstraintRule::apply(key, ConstraintOrder::last);
  }
};

}  // namespace some
