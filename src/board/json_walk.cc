#include "board/json_walk.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/files/json.h"

namespace some {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Stricter than from_chars: JSON does not allow 01, 1. or -.5 as numbers.
bool is_json_number(std::string_view token) {
  if (token.starts_with('-')) token.remove_prefix(1);
  if (token.empty() || !is_digit(token[0])) return false;
  if (token[0] == '0' && token.size() > 1 && is_digit(token[1])) return false;
  const std::size_t dot = token.find('.');
  return dot == std::string_view::npos || (dot + 1 < token.size() && is_digit(token[dot + 1]));
}

class Walker {
 public:
  Walker(std::string_view line, JsonVisitor& visitor)
      : at_(line.data()), end_(line.data() + line.size()), visitor_(visitor) {}

  bool whole() {
    blanks();
    if (at_ == end_ || *at_ != '{' || !value()) return false;
    blanks();
    return at_ == end_;
  }

 private:
  void blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }
  bool take(char c) {
    blanks();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool quoted(std::string_view& out) {
    if (!take('"')) return false;
    const char* begin = at_;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      if (*at_ == '\\' && ++at_ == end_) return false;
    }
    if (at_ == end_) return false;
    out = {begin, static_cast<std::size_t>(at_ - begin)};
    ++at_;
    // Strings with escapes or non-ASCII characters are validated by the library.
    const bool plain = std::all_of(out.begin(), out.end(), [](char c) { return c >= ' ' && c < 0x7f && c != '\\'; });
    return plain || nlohmann::json::accept(begin - 1, at_);
  }

  bool literal(std::string_view word) {
    if (static_cast<std::size_t>(end_ - at_) < word.size() || std::string_view(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool value() {
    blanks();
    if (at_ == end_) return false;
    switch (*at_) {
      case '{': return members();
      case '[': return items();
      case '"': {
        std::string_view text;
        if (!quoted(text)) return false;
        visitor_.text(path_, text);
        return true;
      }
      case 't': return literal("true");
      case 'f': return literal("false");
      case 'n': return literal("null");
      default: {
        if (*at_ != '-' && (*at_ < '0' || *at_ > '9')) return false;
        double number = 0;
        const auto [rest, error] = std::from_chars(at_, end_, number);
        const std::string_view token(at_, static_cast<std::size_t>(rest - at_));
        if (error == std::errc::invalid_argument || !is_json_number(token)) return false;
        if (error == std::errc::result_out_of_range) number = std::strtod(std::string(token).c_str(), nullptr);
        if (!std::isfinite(number)) return false;
        visitor_.number(path_, number);
        at_ = rest;
        return true;
      }
    }
  }

  bool members() {
    if (path_.size() >= static_cast<std::size_t>(max_json_depth)) return false;
    ++at_;
    if (take('}')) return true;
    path_.emplace_back();
    do {
      std::string_view name;
      if (!quoted(name) || !take(':')) return false;
      path_.back().name = name;
      if (!value()) return false;
    } while (take(','));
    path_.pop_back();
    return take('}');
  }

  bool items() {
    if (path_.size() >= static_cast<std::size_t>(max_json_depth)) return false;
    ++at_;
    if (take(']')) return true;
    path_.emplace_back();
    do {
      if (!value()) return false;
      path_.back().place += 1;
    } while (take(','));
    path_.pop_back();
    return take(']');
  }

  const char* at_;
  const char* end_;
  JsonVisitor& visitor_;
  JsonPath path_;
};

}  // namespace

bool walk_json(std::string_view line, JsonVisitor& visitor) { return Walker(line, visitor).whole(); }

}  // namespace some
