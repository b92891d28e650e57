#include "lab/series.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "recipe/schema.h"
#include "recipe/toml.h"

namespace some {

namespace {

namespace fs = std::filesystem;

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string text_of(const TomlNode& node, const std::string& key, const std::string& place) {
  if (node.kind != TomlNode::Kind::text || node.text.empty()) {
    bad_input(Code::setting_type, "{}: {}: must be a string, not {}", place, key, node.describe());
  }
  return node.text;
}

// Reads a name that is valid as part of a folder name.
std::string name_of(const TomlNode& node, const std::string& key, const std::string& place) {
  const std::string name = text_of(node, key, place);
  if (!is_plain_name(name))
    bad_input(Code::setting_type, "{}: {}: must be a plain name, without a slash or a dot at its beginning, not {}",
              place, key, node.describe());
  return name;
}

Series read_series(const TomlNode& node, const std::string& origin) {
  Series series;
  for (const auto& [key, value] : node.entries) {
    const std::string place = fmt::format("{}:{}", origin, value.line);
    if (key == "name") {
      series.name = name_of(value, key, place);
    } else if (key == "title") {
      series.title = text_of(value, key, place);
    } else if (key == "about") {
      series.about = text_of(value, key, place);
    } else if (key == "recipes") {
      if (value.kind != TomlNode::Kind::array || value.items.empty())
        bad_input(Code::setting_type, "{}: {}: must be a list of names of recipes", place, "recipes");
      for (const TomlNode& item : value.items) {
        const std::string name = name_of(item, key, fmt::format("{}:{}", origin, item.line));
        if (contains(series.recipes, name))
          bad_input(Code::name_taken, "{}:{}: {}: \"{}\" is listed twice in the series", origin, item.line, "recipes",
                    name);
        series.recipes.push_back(name);
      }
    } else if (key == "continual") {
      if (value.kind != TomlNode::Kind::array)
        bad_input(Code::setting_type, "{}: {}: must be a list of strings", place, "continual");
      for (const TomlNode& item : value.items)
        series.continual.push_back(text_of(item, key, fmt::format("{}:{}", origin, item.line)));
    } else {
      bad_input(Code::setting_unknown, "{}: unknown key {}; did you mean {}?", place, key,
                nearest_name(key, {"name", "title", "about", "recipes", "continual"}));
    }
  }
  if (series.name.empty() || series.recipes.empty())
    bad_input(Code::setting_missing, "{}:{}: a series requires a name and recipes", origin, node.line);
  return series;
}

}  // namespace

const Series* SeriesIndex::find(const std::string& name) const {
  for (const Series& one : series) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

std::string SeriesIndex::recipe_path(const std::string& recipe) const {
  return (fs::path(folder) / (recipe + ".toml")).string();
}

std::vector<std::string> SeriesIndex::all_recipes() const {
  std::vector<std::string> recipes;
  for (const Series& one : series) {
    for (const std::string& recipe : one.recipes) {
      if (!contains(recipes, recipe)) recipes.push_back(recipe);
    }
  }
  return recipes;
}

std::vector<std::string> SeriesIndex::select(const std::vector<std::string>& names) const {
  const std::vector<std::string> all = all_recipes();
  std::vector<std::string> selected;
  for (const std::string& name : names) {
    std::vector<std::string> meant;
    if (name == "all") {
      meant = all;
    } else if (const Series* one = find(name)) {
      meant = one->recipes;
    } else if (contains(all, name)) {
      meant = {name};
    } else {
      std::vector<std::string> known = all;
      for (const Series& one : series) known.push_back(one.name);
      // Names of ablation runs are prefixed by the number of their report: "v1" is 1-v1 or 3-v1.
      std::string numbered;
      for (const std::string& one : all) {
        if (one.ends_with("-" + name)) numbered += (numbered.empty() ? "" : " or ") + one;
      }
      if (!numbered.empty())
        bad_input(Code::series_unknown, "series or run {} not found; did you mean {}? `some lab list all` lists all",
                  name, numbered);
      const std::string near = misspelled_name(name, known);
      bad_input(Code::series_unknown, "series or run {} not found; {}`some lab list all` lists all", name,
                near.empty() ? "" : fmt::format("did you mean {}? ", near));
    }
    for (const std::string& recipe : meant) {
      if (!contains(selected, recipe)) selected.push_back(recipe);
    }
  }
  return selected;
}

SeriesIndex load_series_index(const std::string& path) {
  const TomlNode root = parse_toml(read_file(path), path);
  SeriesIndex index;
  index.folder = fs::path(path).parent_path().string();
  for (const auto& [key, value] : root.entries) {
    if (key != "series" || value.kind != TomlNode::Kind::array) {
      bad_input(Code::setting_unknown, "{}:{}: unknown key {}; the index holds tables headed [[series]]", path,
                value.line, key);
    }
    for (const TomlNode& item : value.items) {
      if (item.kind != TomlNode::Kind::table)
        bad_input(Code::setting_type, "{}:{}: {}: must be tables headed [[series]]", path, item.line, "series");
      Series series = read_series(item, path);
      if (index.find(series.name) != nullptr)
        bad_input(Code::name_taken, "{}:{}: two series are named {}", path, item.line, series.name);
      for (const std::string& recipe : series.recipes) {
        if (!exists_path(index.recipe_path(recipe))) {
          bad_input(Code::recipe_not_found, "{}:{}: series {} lists the recipe {}, but file {} was not found", path,
                    item.line, series.name, recipe, index.recipe_path(recipe));
        }
      }
      index.series.push_back(std::move(series));
    }
  }
  const std::vector<std::string> all = index.all_recipes();
  for (const Series& one : index.series) {
    if (contains(all, one.name) || one.name == "all")
      bad_input(Code::name_taken, "{}: the series {} has the name of a recipe or of all of them; names must differ",
                path, one.name);
  }
  return index;
}

}  // namespace some
