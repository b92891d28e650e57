#include "keys/rules/key_ema.h"

#include "core/error.h"
#include "core/setting.h"

namespace some {

void KeyEmaRule::declare(SettingList<Settings>& list) {
  list.number("key_ema", &Settings::key_ema, 0, 1,
              "Decay factor of a moving average of the keys that routing uses; 0 = the keys themselves.")
      .below_high = true;
}

void KeyEmaRule::missing(double key_ema) {
  failed(Code::internal, "key_ema is {}, but this key store has no moving average", key_ema);
}

}  // namespace some
