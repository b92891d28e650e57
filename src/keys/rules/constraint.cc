#include "keys/rules/constraint.h"

#include "core/setting.h"

namespace some {

void ConstraintRule::declare(SettingList<Settings>& list) {
  list.choice("constraint", &Settings::constraint, {"normalize", "normalize_used", "clamp", "free"},
              "Length of keys after an update: all 1, used ones 1, at most 1, or free.");
  list.choice("constraint_order", &Settings::constraint_order, {"before_decay", "last"},
              "Whether the constraint comes before or after decay.");
}

}  // namespace some
