#include "keys/rules/constraint.h"

#include "core/setting.h"

namespace some {

void ConstraintRule::declare(SettingList<Settings>& list) {
  list.choice("constraint", &Settings::constraint, {"normalize", "normalize_used", "clamp", "free"},
              "Norm of the keys after an update: all 1, those in use 1, at most 1, or free.");
  list.choice("constraint_order", &Settings::constraint_order, {"before_decay", "last"},
              "Order of the constraint and the decay.");
}

}  // namespace some
