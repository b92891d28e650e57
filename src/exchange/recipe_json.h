// Conversion between recipes and JSON, for config.json of an exported model and for other languages' bindings.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace some {

// Returns every setting by table and name, except machine settings.
nlohmann::json recipe_to_json(const Recipe& recipe);
// Returns the settings as KEY=VALUE overrides. `origin` names the object in messages.
std::vector<std::string> settings_from_json(const nlohmann::json& tables, const std::string& origin);
// Returns a complete recipe; missing settings take their defaults.
Recipe recipe_from_json(const nlohmann::json& tables, const std::string& origin,
                        const std::vector<std::string>& overrides = {});

}  // namespace some
