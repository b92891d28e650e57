#include "keys/settings.h"

#include "core/setting.h"

namespace some {

const std::vector<Setting<KeySettings>>& key_settings() {
  static const std::vector<Setting<KeySettings>> settings = [] {
    SettingList<KeySettings> all;
    Rules::each([&]<typename R>() {
      SettingList<typename R::Settings> own;
      R::declare(own);
      all.include(
          own.list, [](auto& settings) -> auto& { return settings; });
    });
    return std::move(all.list);
  }();
  return settings;
}

void check_key_settings(const KeySettings& settings, int layers) {
  Rules::each([&]<typename R>() { R::check(settings, layers); });
}

Needs needs_of(const KeySettings& settings) {
  Needs needs;
  Rules::each([&]<typename R>() { needs = needs | R::needs(settings); });
  return needs;
}

bool update_due(const KeySettings& settings, std::int64_t step) { return UpdateScheduleRule::due(settings, step); }

KeyPlan plan_update(const KeySettings& settings, const UpdateTime& time) {
  KeyPlan plan;
  Rules::each([&]<typename R>() {
    static_cast<typename R::Plan&>(plan) = R::plan(static_cast<const typename R::Settings&>(settings), time);
  });
  if (plan.learns) plan.needs = needs_of(settings);
  return plan;
}

std::vector<SwitchedRule> switched_rules(KeySettings& settings) {
  std::vector<SwitchedRule> rules;
  Rules::each([&]<typename R>() {
    if constexpr (R::name != nullptr) rules.push_back({R::name, R::words, &(settings.*R::switched), R::idle(settings)});
  });
  return rules;
}

}  // namespace some
