// Series of runs: the names `some lab` knows (recipes/index.toml describes its own format in its first lines).
#pragma once

#include <string>
#include <vector>

namespace some {

struct Series {
  std::string name;
  std::string title;
  std::string about;
  std::vector<std::string> recipes;  // names, in order
};

struct SeriesIndex {
  std::string folder;  // where the index and its recipes stand
  std::vector<Series> series;

  const Series* find(const std::string& name) const;         // null when there is none
  std::string recipe_path(const std::string& recipe) const;  // FOLDER/NAME.toml
  // Every recipe of every series, once, in the order of the index.
  std::vector<std::string> all_recipes() const;
  // The recipes that names of series and of recipes stand for, once each, in the order given. "all" is every recipe. A
  // name that is neither is bad input that names the nearest known one.
  std::vector<std::string> select(const std::vector<std::string>& names) const;
};

// Unknown keys, missing recipe files and names given twice are bad input with file and line.
SeriesIndex load_series_index(const std::string& path);

}  // namespace some
