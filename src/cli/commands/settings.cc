// Lists the settings of recipes, from the table that parses them.
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "cli/command.h"
#include "cli/places.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "recipe/common_names.h"
#include "recipe/schema.h"

namespace some {
namespace {

struct KeysFlags {
  std::string pattern, recipe;
  bool json = false;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool matches(const SettingInfo& key, const std::string& pattern) {
  const std::string name = lower(key.full_name());
  if (pattern.find_first_of("*?[") != std::string::npos) return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  return name.find(pattern) != std::string::npos || lower(key.meaning).find(pattern) != std::string::npos;
}

// True if the name has the pattern at the beginning of one of its words: "layer" matches "frozen_layers", "n_layer"
// does not.
bool begins_a_word(const std::string& name, const std::string& pattern) {
  for (std::size_t at = name.find(pattern); at != std::string::npos; at = name.find(pattern, at + 1)) {
    if (at == 0 || name[at - 1] == '.' || name[at - 1] == '_') return true;
  }
  return false;
}

// Returns what to look for: the pattern, or the setting that other programs call by this name.
std::string pattern_of(const std::string& given) {
  const std::string pattern = lower(given), setting = setting_commonly_called(given);
  const bool in_a_name = std::any_of(recipe_keys().begin(), recipe_keys().end(), [&](const RecipeKey& key) {
    return begins_a_word(lower(key.full_name()), pattern);
  });
  return in_a_name || setting.empty() ? pattern : setting;
}

void run(const KeysFlags& options) {
  const std::string pattern = pattern_of(options.pattern);
  const Recipe defaults;
  const std::string reference = "default";  // the recipe that documents every setting has values of its own
  const std::optional<Recipe> own =
      names_recipe(reference) ? std::optional(load_recipe(find_recipe(reference), {})) : std::nullopt;
  const Recipe recipe = options.recipe.empty() ? Recipe() : load_recipe(find_recipe(options.recipe), {});
  std::vector<const RecipeKey*> found;
  for (const RecipeKey& key : recipe_keys()) {
    if (matches(key, pattern)) found.push_back(&key);
  }
  std::vector<const SettingInfo*> of_stages;
  for (const SettingInfo& key : stage_keys()) {
    if (matches(key, pattern)) of_stages.push_back(&key);
  }
  if (found.empty() && of_stages.empty()) {
    std::vector<std::string> names;
    for (const RecipeKey& key : recipe_keys()) {
      names.push_back(key.full_name());
      if (!key.table.empty()) names.push_back(key.name);
    }
    if (const std::string advice = instead_of_unsupported(options.pattern); !advice.empty())
      bad_input(Code::setting_unknown, "{}: {}", options.pattern, advice);
    const std::string meant = misspelled_name(pattern, names);
    bad_input(Code::setting_unknown, "no setting has '{}' in its name or meaning; {}", options.pattern,
              meant.empty() ? "'some settings' shows all" : fmt::format("did you mean {}?", meant));
  }
  nlohmann::json list = nlohmann::json::array();
  std::string table = "?";
  for (const RecipeKey* key : found) {
    const std::string standard = key->write(key->get(defaults)), value = key->write(key->get(recipe));
    if (options.json) {
      nlohmann::json one{
          {"key", key->full_name()}, {"meaning", key->meaning}, {"type", key->expected()}, {"default", standard}};
      if (!key->choices.empty()) one["choices"] = key->choices;
      if (!options.recipe.empty()) one["value"] = value;
      list.push_back(one);
      continue;
    }
    if (key->table != table) {
      table = key->table;
      for (const RecipeTable& one : recipe_tables()) {
        if (one.name == table && !table.empty())
          fmt::print("{}", wrapped(fmt::format("[{}] {}", table, one.meaning), table_columns()));
      }
    }
    const std::string in_reference = own && key->full_name() != "title" ? key->write(key->get(*own)) : standard;
    const std::string elsewhere =
        in_reference == standard ? "" : fmt::format("; the recipe {} sets {}", reference, in_reference);
    const std::string now = options.recipe.empty() ? "" : fmt::format(" = {}", value);
    fmt::print("{}{}\n", key->full_name(), now);
    fmt::print("{}", wrapped(key->meaning, table_columns(), "    "));
    fmt::print("{}", wrapped(fmt::format("{}; {} if not set{}", key->expected(), standard, elsewhere), table_columns(),
                             "    "));
  }
  if (!of_stages.empty() && !options.json)
    fmt::print("{}", wrapped("[[stage]] A part of the run with its own text or settings; stages run one after another. "
                             "recipes/continual.toml has three.",
                             table_columns()));
  for (const SettingInfo* key : of_stages) {
    if (options.json) {
      list.push_back(
          {{"key", key->full_name()}, {"meaning", key->meaning}, {"type", key->expected()}, {"default", ""}});
      continue;
    }
    fmt::print("{}\n{}", key->full_name(), wrapped(key->meaning, table_columns(), "    "));
  }
  if (options.json) print_json({{"settings", list}});
}

void set_up_settings(Command& command) {
  auto options = std::make_shared<KeysFlags>();
  command.add_option("PATTERN", options->pattern,
                     "part of a name or meaning, or a pattern with * (default: all settings)");
  command.add_option("--recipe", options->recipe, "also show the values in this recipe");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec settings_command() {
  return {
      .name = "settings",
      .group = CommandGroup::find_things,
      .summary = "list settings with meaning, range and default",
      .examples = {{"settings top_k", ""},
                   {"settings 'data.*'", "all settings of one table"},
                   {"settings --recipe tiny", "with its values"}},
      .json = "the settings",
      .set_up = set_up_settings,
  };
}

}  // namespace some
