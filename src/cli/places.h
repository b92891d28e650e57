// Search paths for what users name without a folder: recipes and runs.
#pragma once

#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace some {

// Returns the existing folders in which recipes are searched: ./recipes, next to the program (a build folder inside the
// checkout), and the data folder of an installed program.
std::vector<std::string> recipe_folders();
// Returns the names of all recipes in these folders, without extension, sorted.
std::vector<std::string> recipe_names();
// Returns the file for a recipe's name ("tiny") or path. Throws (bad_input) with the nearest name if it is not found.
std::string find_recipe(const std::string& name);
// Loads the recipe that find_recipe() finds. A text that was passed instead of a recipe is an error that shows how to
// train on it.
Recipe load_named_recipe(const std::string& name, const std::vector<std::string>& changes);
// True if find_recipe() would find it.
bool names_recipe(const std::string& name);
// Returns runs/NAME for a name that is not a path and has a run there; otherwise the name itself.
std::string find_run_folder(const std::string& name);
// Returns the memory of a run for the run's name or folder; otherwise the name itself, that of a memory file.
std::string find_memory_file(const std::string& name);

}  // namespace some
