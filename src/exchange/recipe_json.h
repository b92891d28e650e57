// A recipe as JSON: what config.json of an exported model holds, and what callers in other languages hand over.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace some {

// Every setting by table and name, those of the machine left out.
nlohmann::json recipe_to_json(const Recipe& recipe);
// As KEY=VALUE, for whoever takes overrides. `origin` names the object in messages.
std::vector<std::string> settings_from_json(const nlohmann::json& tables, const std::string& origin);
// A whole recipe; what it does not say has its default.
Recipe recipe_from_json(const nlohmann::json& tables, const std::string& origin,
                        const std::vector<std::string>& overrides = {});

}  // namespace some
