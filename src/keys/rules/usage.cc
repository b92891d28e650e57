#include "keys/rules/usage.h"

#include "core/setting.h"

namespace some {

void UsageRule::declare(SettingList<Settings>& list) {
  list.choice(
      "usage", &Settings::usage, {"ema", "cumulative", "flux"},
      "How usage is counted: running mean of counts, their sum, or running mean of counts relative to fair use.");
  list.number("ema_decay", &Settings::ema_decay, 0, 1, "How much of the running usage is kept in each step.")
      .below_high = true;
}

}  // namespace some
