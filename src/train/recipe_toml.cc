#include "train/recipe_toml.h"

#include <algorithm>

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/error.h"

namespace some::train {

namespace {

TomlNode convert(const toml::node& from) {
  TomlNode to;
  to.line = static_cast<int>(from.source().begin.line);
  if (const auto* table = from.as_table()) {
    to.kind = TomlNode::Kind::table;
    for (const auto& [key, value] : *table) {
      to.entries.emplace_back(std::string(key.str()), convert(value));
      // A table header's own position is that of its bracket; a key's line is where its name stands.
      to.entries.back().second.line = static_cast<int>(key.source().begin.line);
    }
    // The library sorts by name; the order of the file is the one a reader means.
    std::stable_sort(to.entries.begin(), to.entries.end(),
                     [](const auto& left, const auto& right) { return left.second.line < right.second.line; });
  } else if (const auto* array = from.as_array()) {
    to.kind = TomlNode::Kind::array;
    for (const auto& item : *array) to.items.push_back(convert(item));
  } else if (const auto* text = from.as_string()) {
    to.kind = TomlNode::Kind::text;
    to.text = text->get();
  } else if (const auto* integer = from.as_integer()) {
    to.kind = TomlNode::Kind::integer;
    to.integer = integer->get();
    to.number = static_cast<double>(to.integer);
  } else if (const auto* number = from.as_floating_point()) {
    to.kind = TomlNode::Kind::number;
    to.number = number->get();
  } else if (const auto* boolean = from.as_boolean()) {
    to.kind = TomlNode::Kind::boolean;
    to.boolean = boolean->get();
  } else {
    to.kind = TomlNode::Kind::date;
  }
  return to;
}

}  // namespace

const TomlNode* TomlNode::find(std::string_view key) const {
  for (const auto& [name, node] : entries) {
    if (name == key) return &node;
  }
  return nullptr;
}

std::string TomlNode::describe() const {
  switch (kind) {
    case Kind::boolean: return boolean ? "true" : "false";
    case Kind::integer: return fmt::format("the whole number {}", integer);
    case Kind::number: return "the number " + toml_number(number);
    case Kind::text: return fmt::format("the text {}", toml_quote(text));
    case Kind::array: return items.size() == 1 ? "a list of 1 value" : fmt::format("a list of {} values", items.size());
    case Kind::table: return "a table";
    case Kind::date: return "a date or time";
  }
  return "";
}

TomlNode parse_toml(const std::string& text, const std::string& origin) {
  try {
    return convert(toml::parse(text, origin));
  } catch (const toml::parse_error& error) {
    // The library's sentence may run over lines; one line is what the user gets.
    std::string reason(error.description());
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    bad_input("{}:{}: not TOML: {}", origin, error.source().begin.line, reason);
  }
}

std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // 'n': nan and inf stand as they are
  return text;
}

std::string toml_quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      quoted += '\\';
      quoted += character;
    } else if (character == '\n') {
      quoted += "\\n";
    } else if (character == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\u{:04X}", byte);
    } else {
      quoted += character;
    }
  }
  return quoted + '"';
}

}  // namespace some::train
