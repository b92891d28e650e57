// Parses TOML into a plain tree with line numbers. The TOML library is used only in the source file, so that it is
// compiled once and its types appear nowhere else. Recipes and the index of series use this parser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace some {

struct TomlNode {
  enum class Kind { boolean, integer, number, text, array, table, date };
  Kind kind = Kind::table;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;  // also set for an integer
  std::string text;
  std::vector<TomlNode> items;                            // of an array
  std::vector<std::pair<std::string, TomlNode>> entries;  // of a table, in the order of the file
  int line = 0;

  bool is_number() const { return kind == Kind::integer || kind == Kind::number; }
  const TomlNode* find(std::string_view key) const;  // of a table; null if not found
  std::string describe() const;                      // for messages: `the text "fast"`, `the whole number 3`, `a table`
};

// Throws bad_input "ORIGIN:LINE: ..." if the text is not TOML.
TomlNode parse_toml(const std::string& text, const std::string& origin);
// Returns the shortest text that parses as the same double, always a TOML float.
std::string toml_number(double value);
// Returns a quoted TOML string.
std::string toml_quote(const std::string& text);

}  // namespace some
