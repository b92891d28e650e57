#include "keys/rules/clip.h"

#include "core/setting.h"

namespace some {

void ClipRule::declare(SettingList<Settings>& list) {
  list.number("clip_delta", &Settings::clip_delta, 0, unlimited,
              "Maximum movement of a key per update; 0 = unlimited.");
}

}  // namespace some
