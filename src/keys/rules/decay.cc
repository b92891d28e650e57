#include "keys/rules/decay.h"

#include "core/setting.h"

namespace some {

void DecayRule::declare(SettingList<Settings>& list) {
  list.number("delta", &Settings::delta, 0, 1, "Decay rate of the keys of little-used experts, per step.");
  list.boolean("use_delta", &Settings::use_delta, "Enables decay (delta).");
  list.number("theta_percentile", &Settings::theta_percentile, 0, 1, "Quantile of usage below which keys decay.");
  list.number("theta", &Settings::theta, -1, unlimited,
              "Usage below which keys decay, in place of the quantile; negative = use the quantile.");
  list.integer("decay_warmup", &Settings::decay_warmup, 0, unlimited, "Steps before decay begins.").in_steps = true;
}

}  // namespace some
