#include "keys/rules/attraction.h"

#include "core/setting.h"

namespace some {

void AttractionRule::declare(SettingList<Settings>& list) {
  list.number("alpha", &Settings::alpha, 0, unlimited, "Attraction of a key by the queries that chose it.");
  list.boolean("use_alpha", &Settings::use_alpha, "Whether attraction acts at all.");
  list.number("alpha_floor", &Settings::alpha_floor, 0, unlimited,
              "Attraction never falls below this, however often the expert was used.");
}

}  // namespace some
