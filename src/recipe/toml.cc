#include "recipe/toml.h"

#include <algorithm>

#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 64
#include <toml++/toml.h>

#include "core/error.h"
#include "core/escape.h"

namespace some {

namespace {

constexpr int deepest_toml = 32;
constexpr std::size_t longest_name = 200;

struct TomlFault {
  int line = 0;  // 0: none
  std::string what;
};

// Finds input that must not reach the library. The library and this file parse by recursion, so nesting is limited, in
// brackets and in dotted names. Characters beyond ASCII outside of quotes and comments, which TOML does not allow,
// cause undefined behavior in the library (toml++ 3.3, is_non_ascii_horizontal_whitespace). Text after a fault may be
// read wrongly here; the parser stops at the fault.
TomlFault first_fault(std::string_view text) {
  int line = 1, depth = 0, dots = 0;
  const auto too_deep = [&] {
    return TomlFault{line, fmt::format("nested deeper than the supported {} levels", deepest_toml)};
  };
  const std::string_view mark = "\xEF\xBB\xBF";
  for (std::size_t i = text.starts_with(mark) ? mark.size() : 0; i < text.size(); ++i) {
    const char c = text[i];
    switch (c) {
      case '\n':
        ++line;
        dots = 0;
        break;
      case '#': i = std::min(text.find('\n', i), text.size()) - 1; break;
      case '"':
      case '\'': {
        // Three quotes open a multi-line string; a string with one quote ends at the end of its line at the latest.
        const std::string_view three = c == '"' ? R"(""")" : "'''";
        const bool over_lines = text.substr(i, 3) == three;
        const std::string_view end = over_lines ? three : three.substr(0, 1);
        for (i += end.size(); i < text.size() && text.substr(i, end.size()) != end; ++i) {
          if (text[i] == '\n' && !over_lines) break;
          if (text[i] == '\n') ++line;
          if (text[i] == '\\' && c == '"') ++i;
        }
        if (i < text.size() && text[i] == '\n' && !over_lines) {
          --i;
        } else {
          i += end.size() - 1;
          // A string in three quotes may itself end with one or two quotes.
          for (int more = 0; over_lines && more < 2 && i + 1 < text.size() && text[i + 1] == c; ++more) ++i;
        }
        break;
      }
      case '[':
      case '{':
        dots = 0;
        if (++depth > deepest_toml) return too_deep();
        break;
      case ']':
      case '}':
        dots = 0;
        --depth;
        break;
      case '=':
      case ',': dots = 0; break;
      case '.':
        if (++dots > deepest_toml) return too_deep();
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x80)
          return {line, "non-ASCII characters are only allowed in quotes or comments"};
        break;
    }
  }
  return {};
}

TomlNode convert(const toml::node& from, const std::string& origin) {
  TomlNode to;
  to.line = static_cast<int>(from.source().begin.line);
  if (const auto* table = from.as_table()) {
    to.kind = TomlNode::Kind::table;
    for (const auto& [key, value] : *table) {
      if (key.str().size() > longest_name)  // messages repeat names
        bad_input(Code::setting_unknown, "{}:{}: a name of {} bytes; no known name is longer than {}", origin,
                  key.source().begin.line, key.str().size(), longest_name);
      to.entries.emplace_back(std::string(key.str()), convert(value, origin));
      // A table header's own position is that of its bracket; a key's line is the line of its name.
      to.entries.back().second.line = static_cast<int>(key.source().begin.line);
    }
    // The library sorts by name, but readers expect the order of the file.
    std::stable_sort(to.entries.begin(), to.entries.end(),
                     [](const auto& left, const auto& right) { return left.second.line < right.second.line; });
  } else if (const auto* array = from.as_array()) {
    to.kind = TomlNode::Kind::array;
    for (const auto& item : *array) to.items.push_back(convert(item, origin));
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
    case Kind::text: return fmt::format("the text {}", toml_quote(shortened(text, 200)));
    case Kind::array: return items.size() == 1 ? "a list of 1 value" : fmt::format("a list of {} values", items.size());
    case Kind::table: return "a table";
    case Kind::date: return "a date or time";
  }
  return "";
}

TomlNode parse_toml(const std::string& text, const std::string& origin) {
  if (const TomlFault fault = first_fault(text); fault.line > 0)
    bad_input(Code::toml_syntax, "{}:{}: not TOML: {}", origin, fault.line, fault.what);
  try {
    return convert(toml::parse(text, origin), origin);
  } catch (const toml::parse_error& error) {
    // The library's message may have several lines and repeat arbitrary input.
    std::string reason = shortened(error.description(), 200);
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    bad_input(Code::toml_syntax, "{}:{}: not TOML: {}", origin, error.source().begin.line, escaped(reason));
  }
}

std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // 'n': nan and inf stay as they are
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

}  // namespace some
