#include "keys/rules/phoenix.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/setting.h"
#include "keys/settings.h"

namespace some {

void PhoenixRule::declare(SettingList<Settings>& list) {
  list.number("respawn_threshold", &Settings::respawn_threshold, 0, unlimited,
              "Norm below which a key is replaced by a query (phoenix); 0 = never.");
}

void PhoenixRule::check(const KeySettings& settings, int) {
  if (settings.respawn_threshold > 1 && settings.constraint != Constraint::free) {
    bad_input(Code::setting_out_of_range,
              "{} = {}: must be <= 1, because some.constraint limits the norm of keys to 1 and every key would be "
              "replaced in every update",
              "some.respawn_threshold", settings.respawn_threshold);
  }
}

PhoenixRule::Plan PhoenixRule::plan(const Settings& settings, const UpdateTime& time) {
  if (!(settings.respawn_threshold > 0.0)) return {};
  return {settings.respawn_threshold, random_stream(time.seed, fmt::format("keys.{}.{}", time.layer, time.step)),
          random_stream(time.seed, fmt::format("phoenix.{}.{}", time.layer, time.step))};
}

}  // namespace some
