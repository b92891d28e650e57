// The table of recipe keys: each key stands here once, with its type, range, meaning and place in the Recipe. Reading,
// overrides, error messages, the commented file that is written back, and differences are all made from this table.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/rooms.h"
#include "train/recipe.h"

namespace some::train {

enum class SettingKind {
  boolean,
  integer,
  number,
  text,
  choice,       // text, one of `choices`, or one that `accepts` takes
  numbers,      // list of numbers
  integers,     // list of whole numbers
  layer_scale,  // list of numbers, one a layer, or one number for all
  anneal,       // inline table {shape, start, end}
};

using Setting = std::variant<bool, std::int64_t, double, std::string, std::vector<double>, BetaAnneal>;

struct RecipeKey {
  std::string table;  // "model", "some", "data", "train"; empty for keys before the first table
  std::string name;
  SettingKind kind = SettingKind::number;
  std::string meaning;
  std::vector<std::string> choices;
  bool (*accepts)(const std::string&) = nullptr;  // where `choices` are examples only: whether it is one of them
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;    // the value must be above `low`, not equal to it
  bool below_high = false;   // likewise
  std::vector<int> lengths;  // of a list; empty: any
  std::function<Setting(const Recipe&)> get;
  std::function<void(Recipe&, const Setting&)> set;

  std::string full_name() const { return table.empty() ? name : table + "." + name; }
  std::string wants() const;                      // "a whole number of at least 1"
  std::string write(const Setting& value) const;  // as TOML
};

const std::vector<RecipeKey>& recipe_keys();
const RecipeKey* find_recipe_key(std::string_view full_name);
// Tables in the order they are written, with a line on what each holds.
struct RecipeTable {
  std::string name;
  std::string meaning;
};
const std::vector<RecipeTable>& recipe_tables();

// Names of [published]: numbers of the whole run, and lists with one number an epoch.
const std::vector<std::string>& published_scalars();
const std::vector<std::string>& published_columns();

const std::vector<std::string>& anneal_shapes();
AnnealShape anneal_shape(const std::string& name);  // one of anneal_shapes()

// The candidate with the smallest edit distance to `name`.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);
// The same, but empty where none is near enough to be a misspelling of it: a guess among many free names misleads.
std::string misspelled_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace some::train
