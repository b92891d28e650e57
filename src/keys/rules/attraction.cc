#include "keys/rules/attraction.h"

#include "core/setting.h"

namespace some {

void AttractionRule::declare(SettingList<Settings>& list) {
  list.number("alpha", &Settings::alpha, 0, unlimited,
              "Attraction of a key by the queries that chose it (key learning rate).");
  list.boolean("use_alpha", &Settings::use_alpha, "Enables attraction (alpha).");
  list.number("alpha_floor", &Settings::alpha_floor, 0, unlimited,
              "Lower bound of the attraction, which falls with the usage of the expert.");
}

}  // namespace some
