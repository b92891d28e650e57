#include "exchange/recipe_json.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/json.h"
#include "recipe/schema.h"
#include "recipe/toml.h"

namespace some {
namespace {

nlohmann::json to_json(const RecipeKey& key, const SettingValue& value) {
  return std::visit(
      [&]<typename T>(const T& one) -> nlohmann::json {
        if constexpr (std::is_same_v<T, Anneal>) {
          return {{"shape", anneal_shapes().at(static_cast<std::size_t>(one.shape))},
                  {"start", one.start},
                  {"end", one.end}};
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          nlohmann::json list = nlohmann::json::array();
          for (const double item : one) {
            if (key.kind == SettingKind::integers)
              list.push_back(static_cast<std::int64_t>(item));
            else
              list.push_back(item);
          }
          return list;
        } else {
          return one;
        }
      },
      value);
}

// Formats a JSON value as in a recipe.
std::string toml_of(const nlohmann::json& value, const std::string& name, const std::string& origin) {
  if (value.is_string()) return toml_quote(value.get<std::string>());
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_integer()) return value.dump();
  if (value.is_number_float()) return toml_number(value.get<double>());
  std::string text;
  if (value.is_array()) {
    for (const nlohmann::json& item : value) text += (text.empty() ? "" : ", ") + toml_of(item, name, origin);
    return "[" + text + "]";
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items())
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", toml_quote(key), toml_of(item, name, origin));
    return "{" + text + "}";
  }
  bad_input(Code::json_type, "{}: {}: {} is not a value of a setting", origin, name, describe(value));
}

}  // namespace

nlohmann::json recipe_to_json(const Recipe& recipe) {
  nlohmann::json out = nlohmann::json::object();
  for (const RecipeKey& key : recipe_keys()) {
    if (key.role == SettingRole::machine) continue;
    const nlohmann::json value = to_json(key, key.get(recipe));
    if (key.table.empty())
      out[key.name] = value;
    else
      out[key.table][key.name] = value;
  }
  return out;
}

std::vector<std::string> settings_from_json(const nlohmann::json& tables, const std::string& origin) {
  if (!tables.is_object())
    bad_input(Code::json_type, "{}: must be an object of tables such as \"model\", not {}", origin, describe(tables));
  std::vector<std::string> settings;
  for (const auto& [name, value] : tables.items()) {
    const bool is_table = value.is_object() && find_recipe_key(name) == nullptr;
    if (!is_table) {
      settings.push_back(name + "=" + toml_of(value, name, origin));
      continue;
    }
    for (const auto& [key, item] : value.items())
      settings.push_back(name + "." + key + "=" + toml_of(item, name + "." + key, origin));
  }
  return settings;
}

Recipe recipe_from_json(const nlohmann::json& tables, const std::string& origin,
                        const std::vector<std::string>& overrides) {
  std::vector<std::string> settings = settings_from_json(tables, origin);
  settings.insert(settings.end(), overrides.begin(), overrides.end());
  try {
    return parse_recipe("", origin, settings);
  } catch (const Error& error) {
    // The settings were passed as overrides internally; the message must not call them that.
    std::string message = error.what();
    if (message.starts_with("override ")) message.erase(0, 9);
    throw error.within(origin, message.starts_with(origin) ? message : origin + ": " + message);
  }
}

}  // namespace some
