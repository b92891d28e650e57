#include "keys/rules/usage.h"

#include "core/setting.h"

namespace some {

void UsageRule::declare(SettingList<Settings>& list) {
  list.choice("usage", &Settings::usage, {"ema", "cumulative", "flux"},
              "Measure of expert usage: exponential moving average of counts, cumulative counts, or moving average of "
              "counts relative to uniform load.");
  list.number("ema_decay", &Settings::ema_decay, 0, 1, "Decay factor of the moving average of usage, per step.")
      .below_high = true;
}

}  // namespace some
