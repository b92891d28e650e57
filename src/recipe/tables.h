// Tables of a recipe that are not settings: [published], [run] and [from]. Errors are bad_input that begins with
// "ORIGIN:LINE"; `place` is that of the table.
#pragma once

#include <string>

#include "recipe/recipe.h"
#include "recipe/toml.h"

namespace some {

Published read_published(const TomlNode& node, const std::string& origin, const std::string& place);
// Returns the id of the run that wrote the recipe; empty if it has none.
std::string read_run_id(const TomlNode& node, const std::string& origin, const std::string& place);
InitializedFrom read_from(const TomlNode& node, const std::string& origin, const std::string& place);

}  // namespace some
