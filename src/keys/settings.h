// All settings of the key update (spec 4) with their defaults, as declared by the rules (keys/rules/rules.h), and the
// plans computed from them. Names are those of the [some] table of a recipe.
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

// Settings in the order of the rules. Include core/setting.h to use them.
const std::vector<Setting<KeySettings>>& key_settings();
// Throws bad_input for an impossible combination; the message begins with the recipe key at fault.
void check_key_settings(const KeySettings& settings, int layers);

// Returns the sums of a step that some rule may read under these settings.
Needs needs_of(const KeySettings& settings);
// True if keys are updated in this step of a run.
bool update_due(const KeySettings& settings, std::int64_t step);
// Returns the numbers of one update of one layer. Its sums and its update depend on settings and time only through
// them.
KeyPlan plan_update(const KeySettings& settings, const UpdateTime& time);

// A rule that adaptation can switch on separately.
struct SwitchedRule {
  std::string name;   // "alpha"
  std::string words;  // "attraction"
  bool* on;
  bool idle;  // true if it has no effect even when switched on
};
std::vector<SwitchedRule> switched_rules(KeySettings& settings);

}  // namespace some
