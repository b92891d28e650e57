// Every setting of the key update (spec 4) with its default, as the rules declare them (keys/rules/rules.h), and what
// is made of them. Names are those of the [some] table of a recipe.
#pragma once

#include <string>
#include <vector>

#include "keys/rules/rules.h"

namespace some {
template <typename Owner>
struct Setting;  // core/setting.h
}

namespace some {

struct KeySettings : Rules::Settings {
  bool operator==(const KeySettings&) const = default;
};

// In the order of the rules. Include core/setting.h to use them.
const std::vector<Setting<KeySettings>>& key_settings();
// Throws bad_input when a combination is impossible; the message begins with the recipe key at fault.
void check_key_settings(const KeySettings& settings, int layers);

// Of the sums of a step, those that a rule may read under these settings.
Needs needs_of(const KeySettings& settings);
// Whether keys are updated in this step of a run at all.
bool update_due(const KeySettings& settings, std::int64_t step);
// The numbers of one update of one layer: all that its sums and its update are given of settings and time.
KeyPlan plan_update(const KeySettings& settings, const UpdateTime& time);

// A rule that adaptation can switch on by itself.
struct SwitchedRule {
  std::string name;   // "alpha"
  std::string words;  // "attraction"
  bool* on;
  bool idle;  // has no effect even when it is switched on
};
std::vector<SwitchedRule> switched_rules(KeySettings& settings);

}  // namespace some
