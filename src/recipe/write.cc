// Writes the resolved recipe, and the differences between two recipes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"
#include "recipe/toml.h"

namespace some {

namespace {

std::string write_published(const Published& published) {
  std::string text =
      "\n# Published numbers of this run, for comparison only. Lists have one number per epoch, nan if nothing was "
      "reported.\n[published]\n";
  if (!published.source.empty()) text += fmt::format("source = {}\n", toml_quote(published.source));
  if (!published.note.empty()) text += fmt::format("note = {}\n", toml_quote(published.note));
  for (const std::string& name : published_scalars()) {
    const auto value = published.values.find(name);
    if (value != published.values.end()) text += fmt::format("{} = {}\n", name, toml_number(value->second));
  }
  if (published.epochs.empty()) return text;
  std::string numbers;
  for (const PublishedEpoch& epoch : published.epochs)
    numbers += (numbers.empty() ? "" : ", ") + std::to_string(epoch.epoch);
  text += fmt::format("epochs = [{}]\n", numbers);
  for (const std::string& name : published_columns()) {
    std::string column;
    bool reported = false;
    for (const PublishedEpoch& epoch : published.epochs) {
      const auto value = epoch.values.find(name);
      reported = reported || value != epoch.values.end();
      column += (column.empty() ? "" : ", ") + (value == epoch.values.end() ? "nan" : toml_number(value->second));
    }
    if (reported) text += fmt::format("{} = [{}]\n", name, column);
  }
  return text;
}

std::string write_stages(const Recipe& recipe) {
  std::string text =
      "\n# Stages are trained one after another, each with these settings on top of those above; weights, keys and "
      "the\n"
      "# optimizer's moments carry over.\n";
  for (const Stage& stage : recipe.stages) {
    text += fmt::format("[[stage]]\ntitle = {}\n", toml_quote(stage.title));
    // In the order of declaration: in that of the file, what is written would not read back as the same text.
    auto settings = stage.settings;
    std::stable_sort(settings.begin(), settings.end(),
                     [](const auto& a, const auto& b) { return find_recipe_key(a.first) < find_recipe_key(b.first); });
    for (const auto& [name, value] : settings)
      text += fmt::format("{} = {}\n", name, find_recipe_key(name)->write(value));
  }
  return text;
}

// Returns settings of stages: "stage.2.train.lr" -> "0.001".
std::map<std::string, std::string> stage_settings(const Recipe& recipe) {
  std::map<std::string, std::string> settings;
  for (std::size_t i = 0; i < recipe.stages.size(); ++i) {
    settings[fmt::format("stage.{}.title", i + 1)] = toml_quote(recipe.stages[i].title);
    for (const auto& [name, value] : recipe.stages[i].settings)
      settings[fmt::format("stage.{}.{}", i + 1, name)] = find_recipe_key(name)->write(value);
  }
  return settings;
}

std::string write_from(const InitializedFrom& from) {
  return fmt::format(
      "\n# The checkpoint that initialized this run: run, step, hash of its model.safetensors, and whether the "
      "optimizer's\n"
      "# moments were loaded too.\n"
      "[from]\nrun = {}\nstep = {}\nhash = {}\noptimizer = {}\n",
      toml_quote(from.run), from.step, toml_quote(from.hash), from.optimizer);
}

}  // namespace

std::string InitializedFrom::text() const {
  return fmt::format("{}, step {}{}", run, step, optimizer ? ", with its optimizer's moments" : "");
}

std::string write_recipe(const Recipe& recipe) {
  const Recipe defaults;
  std::string text;
  for (const RecipeTable& table : recipe_tables()) {
    if (!table.name.empty()) text += fmt::format("\n# {}\n[{}]\n", table.meaning, table.name);
    for (const RecipeKey& key : recipe_keys()) {
      if (key.table != table.name) continue;
      text += fmt::format("# {}\n#   {}; {} if not set\n{} = {}\n", key.meaning, key.expected(),
                          key.write(key.get(defaults)), key.name, key.write(key.get(recipe)));
    }
  }
  if (!recipe.stages.empty()) text += write_stages(recipe);
  if (recipe.from) text += write_from(*recipe.from);
  if (!recipe.run_id.empty())
    text += fmt::format("\n# Identity of this run, stored in every file of its checkpoints.\n[run]\nid = {}\n",
                        toml_quote(recipe.run_id));
  if (recipe.published) text += write_published(*recipe.published);
  return text;
}

std::map<std::string, std::string> recipe_settings(const Recipe& recipe) {
  std::map<std::string, std::string> settings;
  for (const RecipeKey& key : recipe_keys()) {
    if (key.full_name() != "title") settings[key.full_name()] = key.write(key.get(recipe));
  }
  settings.merge(stage_settings(recipe));
  if (recipe.from) settings["from"] = fmt::format("{}, hash {}", recipe.from->text(), recipe.from->hash);
  return settings;
}

std::vector<std::string> recipe_differences(const Recipe& recipe, const Recipe& base) {
  std::vector<std::string> differences;
  for (const RecipeKey& key : recipe_keys()) {
    if (key.full_name() == "title") continue;
    const std::string here = key.write(key.get(recipe)), there = key.write(key.get(base));
    if (here != there) differences.push_back(fmt::format("{} = {} ({})", key.full_name(), here, there));
  }
  const auto mine = stage_settings(recipe), theirs = stage_settings(base);
  std::map<std::string, std::string> all = mine;
  all.insert(theirs.begin(), theirs.end());
  for (const auto& [name, unused] : all) {
    const auto value = [&](const auto& settings) {
      const auto found = settings.find(name);
      return found == settings.end() ? std::string("none") : found->second;
    };
    if (value(mine) != value(theirs))
      differences.push_back(fmt::format("{} = {} ({})", name, value(mine), value(theirs)));
  }
  return differences;
}

}  // namespace some
