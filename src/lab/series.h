// Series of runs: the names that `some lab` accepts (the first lines of recipes/index.toml describe its format).
#pragma once

#include <string>
#include <vector>

namespace some {

struct Series {
  std::string name;
  std::string title;
  std::string about;
  std::vector<std::string> recipes;  // names, in order
  // Texts that every finished run of the series learns one after another (analysis/continual/continual.h): files,
  // folders or builtin:DOMAIN. Empty: none.
  std::vector<std::string> continual;
};

struct SeriesIndex {
  std::string folder;  // folder of the index and its recipes
  std::vector<Series> series;

  const Series* find(const std::string& name) const;         // null if not found
  std::string recipe_path(const std::string& recipe) const;  // FOLDER/NAME.toml
  // Returns every recipe of every series, once each, in the order of the index.
  std::vector<std::string> all_recipes() const;
  // Returns the recipes for names of series and of recipes, once each, in the order given. "all" selects every recipe.
  // Throws (bad_input), with the nearest known name, for an unknown name.
  std::vector<std::string> select(const std::vector<std::string>& names) const;
};

// Throws (bad_input), with file and line, for unknown keys, missing recipe files and duplicate names.
SeriesIndex load_series_index(const std::string& path);

}  // namespace some
