#include "recipe/values.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "recipe/common_names.h"

namespace some {
namespace {

[[noreturn]] void wrong(const RecipeKey& key, const TomlNode& node, const std::string& place,
                        Code code = Code::setting_type) {
  bad_input(code, "{}: {}: must be {}, not {}", place, key.full_name(), key.expected(), node.describe());
}

}  // namespace

void check_range(const RecipeKey& key, double value, const TomlNode& node, const std::string& place) {
  if (!key.contains(value)) wrong(key, node, place, Code::setting_out_of_range);
}

namespace {

std::vector<double> numbers(const RecipeKey& key, const TomlNode& node, const std::string& place) {
  if (node.kind != TomlNode::Kind::array) wrong(key, node, place);
  std::vector<double> values;
  for (const TomlNode& item : node.items) {
    if (key.kind == SettingKind::integers ? item.kind != TomlNode::Kind::integer : !item.is_number())
      wrong(key, item, place);
    check_range(key, item.number, item, place);
    values.push_back(item.number);
  }
  const bool right_length =
      key.lengths.empty() || std::find(key.lengths.begin(), key.lengths.end(), values.size()) != key.lengths.end();
  if (!right_length) wrong(key, node, place);
  return values;
}

Anneal anneal(const RecipeKey& key, const TomlNode& node, const std::string& place) {
  if (node.kind != TomlNode::Kind::table) wrong(key, node, place);
  Anneal result;
  for (const auto& [name, value] : node.entries) {
    const std::string full = key.full_name() + "." + name;
    if (name == "shape") {
      const auto& shapes = anneal_shapes();
      if (value.kind != TomlNode::Kind::text || std::find(shapes.begin(), shapes.end(), value.text) == shapes.end())
        wrong(key, value, place);
      result.shape = anneal_shape(value.text);
    } else if (name == "start" || name == "end") {
      if (!value.is_number() || !std::isfinite(value.number) || value.number < 0) {
        bad_input(Code::setting_type, "{}: {}: must be a number >= 0, not {}", place, full, value.describe());
      }
      (name == "start" ? result.start : result.end) = value.number;
    } else {
      bad_input(Code::setting_unknown, "{}: unknown key {}; did you mean {}.{}?", place, full, key.full_name(),
                nearest_name(name, {"shape", "start", "end"}));
    }
  }
  if (result.shape == AnnealShape::exponential && (result.start <= 0 || result.end <= 0)) {
    bad_input(Code::setting_out_of_range, "{}: {}: an exponential shape requires start and end above 0", place,
              key.full_name());
  }
  return result;
}

}  // namespace

SettingValue setting_value(const RecipeKey& key, const TomlNode& node, const std::string& place) {
  switch (key.kind) {
    case SettingKind::boolean:
      if (node.kind != TomlNode::Kind::boolean) wrong(key, node, place);
      return node.boolean;
    case SettingKind::integer:
      if (node.kind != TomlNode::Kind::integer) wrong(key, node, place);
      check_range(key, node.number, node, place);
      return node.integer;
    case SettingKind::number:
      if (!node.is_number()) wrong(key, node, place);
      check_range(key, node.number, node, place);
      return node.number;
    case SettingKind::text:
      if (node.kind != TomlNode::Kind::text) wrong(key, node, place);
      return node.text;
    case SettingKind::choice: {
      if (node.kind != TomlNode::Kind::text) wrong(key, node, place);
      const bool known = key.accepts != nullptr
                             ? key.accepts(node.text)
                             : std::find(key.choices.begin(), key.choices.end(), node.text) != key.choices.end();
      if (!known) wrong(key, node, place, Code::setting_out_of_range);
      return node.text;
    }
    case SettingKind::layer_scale:
      if (node.is_number()) return std::vector<double>{};  // filled in when the number of layers is known
      return numbers(key, node, place);
    case SettingKind::numbers:
    case SettingKind::integers: return numbers(key, node, place);
    case SettingKind::anneal: return anneal(key, node, place);
  }
  return SettingValue();
}

}  // namespace some
