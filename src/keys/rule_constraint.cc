#include "keys/rule_constraint.h"

#include "base/setting.h"

namespace some::keys {

void ConstraintRule::declare(SettingList<Settings>& list) {
  list.choice("constraint", &Settings::constraint, {"normalize", "normalize_used", "clamp", "free"},
              "Length of keys after an update: all 1, used ones 1, at most 1, or free.");
  list.choice("constraint_order", &Settings::constraint_order, {"before_decay", "last"},
              "Whether the constraint comes before or after decay.");
}

}  // namespace some::keys
