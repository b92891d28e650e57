#include "keys/rules/pace.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/setting.h"
#include "keys/settings.h"

namespace some {

void UpdateScheduleRule::declare(SettingList<Settings>& list) {
  list.sequence("frozen_layers", SettingKind::integers, &Settings::frozen_layers, 0,
                "Layers whose keys never move (study D2), counted from 0.");
  list.integer("update_every", &Settings::update_every, 1, unlimited, "Steps between key updates.");
  list.number("update_fraction", &Settings::update_fraction, 0, 1,
              "Fraction of the positions, drawn at random, that take part in a key update.")
      .above_low = true;
}

void UpdateScheduleRule::check(const KeySettings& settings, int layers) {
  for (const int layer : settings.frozen_layers) {
    if (layer < 0 || layer >= layers) {
      bad_input(Code::layer_out_of_range, "{} names layer {}: model.layers = {}, so layers are 0 to {}",
                "some.frozen_layers", layer, layers, layers - 1);
    }
  }
}

UpdateScheduleRule::Plan UpdateScheduleRule::plan(const Settings& settings, const UpdateTime& time) {
  const std::vector<int>& frozen = settings.frozen_layers;
  Plan plan;
  plan.learns = std::find(frozen.begin(), frozen.end(), time.layer) == frozen.end();
  plan.fraction = settings.update_fraction;
  if (plan.fraction < 1.0) plan.stream = random_stream(time.seed, fmt::format("keys.{}.{}", time.layer, time.step));
  return plan;
}

}  // namespace some
