// Where things are that a user names without saying where: recipes.
#pragma once

#include <string>
#include <vector>

namespace some {

// Folders that recipes are looked for in, those that are there: ./recipes, beside the program (a build folder inside
// the checkout), and where an installed program keeps them.
std::vector<std::string> recipe_folders();
// Names of all recipes in them, without ending, sorted.
std::vector<std::string> recipe_names();
// The file that a recipe's name ("tiny") or path stands for. bad_input, with the nearest name, where there is none.
std::string find_recipe(const std::string& name);

}  // namespace some
