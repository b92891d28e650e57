#include "keys/rules/key_ema.h"

#include "core/error.h"
#include "core/setting.h"

namespace some {

void KeyEmaRule::declare(SettingList<Settings>& list) {
  list.number("key_ema", &Settings::key_ema, 0, 1,
              "Route by a running mean of the keys with this factor; 0: by the keys themselves.")
      .below_high = true;
}

void KeyEmaRule::missing(double key_ema) {
  failed(Code::internal, "key_ema is {}, but this key store was made without a running mean", key_ema);
}

}  // namespace some
