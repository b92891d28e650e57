#include "keys/rules/decay.h"

#include "core/setting.h"

namespace some {

void DecayRule::declare(SettingList<Settings>& list) {
  list.number("delta", &Settings::delta, 0, 1, "Share by which keys of little-used experts shrink in each step.");
  list.boolean("use_delta", &Settings::use_delta, "Whether decay acts at all.");
  list.number("theta_percentile", &Settings::theta_percentile, 0, 1, "Experts below this quantile of usage decay.");
  list.number("theta", &Settings::theta, -1, unlimited,
              "Usage below which experts decay, instead of the quantile; negative: the quantile holds.");
  list.integer("decay_warmup", &Settings::decay_warmup, 0, unlimited, "Steps before decay begins.").in_steps = true;
}

}  // namespace some
