#include "recipe/tables.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "recipe/common_names.h"
#include "recipe/schema.h"

namespace some {

Published read_published(const TomlNode& node, const std::string& origin, const std::string& place) {
  if (node.kind != TomlNode::Kind::table)
    bad_input(Code::setting_type, "{}: {}: must be a table, not {}", place, "published", node.describe());
  Published published;
  std::vector<std::string> names = {"source", "note", "epochs"};
  names.insert(names.end(), published_scalars().begin(), published_scalars().end());
  names.insert(names.end(), published_columns().begin(), published_columns().end());
  const auto contains = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  std::vector<std::pair<std::string, const TomlNode*>> columns;
  const TomlNode* epochs = nullptr;
  for (const auto& [name, value] : node.entries) {
    const std::string here = fmt::format("{}:{}", origin, value.line);
    if (name == "source" || name == "note") {
      if (value.kind != TomlNode::Kind::text)
        bad_input(Code::setting_type, "{}: published.{}: must be a string, not {}", here, name, value.describe());
      (name == "source" ? published.source : published.note) = value.text;
    } else if (contains(published_scalars(), name)) {
      if (!value.is_number())
        bad_input(Code::setting_type, "{}: published.{}: must be a number, not {}", here, name, value.describe());
      published.values[name] = value.number;
    } else if (name == "epochs" || contains(published_columns(), name)) {
      const bool all_numbers = std::all_of(value.items.begin(), value.items.end(), [&](const TomlNode& item) {
        return name == "epochs" ? item.kind == TomlNode::Kind::integer : item.is_number();
      });
      if (value.kind != TomlNode::Kind::array || !all_numbers) {
        bad_input(Code::setting_type,
                  "{}: published.{}: must be a list of numbers, one per epoch, nan if nothing was reported", here,
                  name);
      }
      if (name == "epochs") {
        epochs = &value;
      } else {
        columns.emplace_back(name, &value);
      }
    } else {
      bad_input(Code::setting_unknown, "{}: unknown key published.{}; did you mean published.{}?", here, name,
                nearest_name(name, names));
    }
  }
  const std::size_t count = epochs != nullptr ? epochs->items.size()
                            : columns.empty() ? 0
                                              : columns[0].second->items.size();
  for (std::size_t i = 0; i < count; ++i) {
    PublishedEpoch epoch;
    epoch.epoch = epochs != nullptr ? static_cast<int>(epochs->items[i].integer) : static_cast<int>(i) + 1;
    for (const auto& [name, column] : columns) {
      if (column->items.size() != count) {
        bad_input(Code::recipe_invalid, "{}:{}: published.{} has {} numbers, but the other lists have {}", origin,
                  column->line, name, column->items.size(), count);
      }
      if (!std::isnan(column->items[i].number)) epoch.values[name] = column->items[i].number;
    }
    published.epochs.push_back(epoch);
  }
  return published;
}

std::string read_run_id(const TomlNode& node, const std::string& origin, const std::string& place) {
  if (node.kind != TomlNode::Kind::table)
    bad_input(Code::setting_type, "{}: {}: must be a table, not {}", place, "run", node.describe());
  std::string id;
  for (const auto& [name, value] : node.entries) {
    if (name != "id")
      bad_input(Code::setting_unknown, "{}:{}: unknown key run.{}; the table has run.id only", origin, value.line,
                name);
    if (value.kind != TomlNode::Kind::text || value.text.empty())
      bad_input(Code::setting_type, "{}:{}: run.{}: must be {}, not {}", origin, value.line, name, "a string",
                value.describe());
    id = value.text;
  }
  return id;
}

InitializedFrom read_from(const TomlNode& node, const std::string& origin, const std::string& place) {
  if (node.kind != TomlNode::Kind::table)
    bad_input(Code::setting_type, "{}: {}: must be a table, not {}", place, "from", node.describe());
  InitializedFrom from;
  const auto wrong = [&](const std::string& name, const TomlNode& value, const char* expected) {
    bad_input(Code::setting_type, "{}:{}: from.{}: must be {}, not {}", origin, value.line, name, expected,
              value.describe());
  };
  for (const auto& [name, value] : node.entries) {
    if (name == "run" || name == "hash") {
      if (value.kind != TomlNode::Kind::text || value.text.empty()) wrong(name, value, "a string");
      (name == "run" ? from.run : from.hash) = value.text;
    } else if (name == "step") {
      if (value.kind != TomlNode::Kind::integer || value.integer < 0) wrong(name, value, "an integer >= 0");
      from.step = value.integer;
    } else if (name == "optimizer") {
      if (value.kind != TomlNode::Kind::boolean) wrong(name, value, "true or false");
      from.optimizer = value.boolean;
    } else {
      bad_input(Code::setting_unknown, "{}:{}: unknown key from.{}; did you mean from.{}?", origin, value.line, name,
                nearest_name(name, {"run", "step", "hash", "optimizer"}));
    }
  }
  if (from.run.empty() || from.hash.empty())
    bad_input(Code::setting_missing, "{}: [from] requires run, step and hash", place);
  return from;
}

}  // namespace some
