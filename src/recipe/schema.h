// The table of recipe keys. Each key is declared once (core/setting.h); keys of the model are declared by the model and
// its rules. Reading, overrides, error messages, the commented output file and differences are generated from this
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
// True if an override or a difference, such as `train.device = "cpu"`, is of a setting of the machine, which may change
// when a run is resumed.
bool is_machine_setting(std::string_view assignment);
// True for the settings that a comparison of runs leaves out: those of the machine, except the precision, and how many
// checkpoints are kept.
bool is_left_out_of_comparisons(std::string_view assignment);
// Tables in output order, each with a one-line description.
struct RecipeTable {
  std::string name;
  std::string meaning;
};
const std::vector<RecipeTable>& recipe_tables();

// Keys that a table [[stage]] accepts, as text: its title, and keys of the tables above.
const std::vector<SettingInfo>& stage_keys();

// Names in [published]: numbers of the whole run, and lists with one number per epoch.
const std::vector<std::string>& published_scalars();
const std::vector<std::string>& published_columns();

AnnealShape anneal_shape(const std::string& name);  // one of anneal_shapes()

// Returns the candidate with the smallest edit distance to `name`.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);
// The same, but empty if no candidate is close enough to be a misspelling: a guess among many free names would mislead.
std::string misspelled_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace some
