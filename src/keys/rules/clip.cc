#include "keys/rules/clip.h"

#include "core/setting.h"

namespace some {

void ClipRule::declare(SettingList<Settings>& list) {
  list.number("clip_delta", &Settings::clip_delta, 0, unlimited,
              "Longest way a key may move in one update; 0: no limit.");
}

}  // namespace some
