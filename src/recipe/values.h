// Converts a TOML value to the value of a setting. Errors are bad_input "PLACE: SETTING: must be ..., not ...".
#pragma once

#include <string>

#include "recipe/schema.h"
#include "recipe/toml.h"

namespace some {

// For a layer_scale given as one number the result is an empty list: the number of layers is not known yet.
SettingValue setting_value(const RecipeKey& key, const TomlNode& node, const std::string& place);
// Throws if the setting does not allow `value`.
void check_range(const RecipeKey& key, double value, const TomlNode& node, const std::string& place);

}  // namespace some
