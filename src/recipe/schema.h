// The table of recipe keys: each key is declared once (core/setting.h), those of the model by the model and its rules.
// Reading, overrides, error messages, the commented file that is written back, and differences are made from this
// table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/setting.h"
#include "recipe/recipe.h"

namespace some {

struct RecipeKey : Setting<Recipe> {
  RecipeKey(const Setting<Recipe>& setting) : Setting<Recipe>(setting) {}
  std::string write(const SettingValue& value) const;  // as TOML
};

const std::vector<RecipeKey>& recipe_keys();
const RecipeKey* find_recipe_key(std::string_view full_name);
// Tables in the order they are written, with a line on what each holds.
struct RecipeTable {
  std::string name;
  std::string meaning;
};
const std::vector<RecipeTable>& recipe_tables();

// What a table [[stage]] may have, in words: its title, and keys of the tables above.
const std::vector<SettingWords>& stage_keys();

// Names of [published]: numbers of the whole run, and lists with one number an epoch.
const std::vector<std::string>& published_scalars();
const std::vector<std::string>& published_columns();

AnnealShape anneal_shape(const std::string& name);  // one of anneal_shapes()

// The candidate with the smallest edit distance to `name`.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);
// The same, but empty where none is near enough to be a misspelling of it: a guess among many free names misleads.
std::string misspelled_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace some
