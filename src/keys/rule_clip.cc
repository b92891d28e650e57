#include "keys/rule_clip.h"

#include "base/setting.h"

namespace some::keys {

void ClipRule::declare(SettingList<Settings>& list) {
  list.number("clip_delta", &Settings::clip_delta, 0, unlimited,
              "Longest way a key may move in one update; 0: no limit.");
}

}  // namespace some::keys
