#include "core/escape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace some {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;   // 0: not UTF-8
  bool cut_short = false;  // truncated, but a valid prefix of a longer character
};

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                             : lead >= 0xE0 && lead < 0xF0 ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
  if (length == 0) return {};
  std::uint32_t code = lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {0, 0, true};
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const std::uint32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  if (code < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {};
  return {code, length};
}

// True for control characters, separators that some terminals obey, zero-width characters that join or hide, and
// direction marks.
bool needs_escape(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0xAD || code == 0x61C ||
         (code >= 0x200B && code <= 0x200F && code != 0x200D && code != 0x200C) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || (code >= 0xE0000 && code <= 0xE007F);
}

std::string escape_text(std::string_view text, Lines lines, std::string* waiting) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.cut_short && waiting != nullptr) {
      *waiting = text;
      break;
    }
    const std::size_t length = std::max<std::size_t>(character.bytes, 1);
    if (character.bytes == 0 || (character.code < 0x100 && needs_escape(character.code))) {
      const bool kept = lines == Lines::kept && (text[0] == '\n' || text[0] == '\t') && character.bytes == 1;
      const std::uint32_t code = character.bytes == 0 ? static_cast<unsigned char>(text[0]) : character.code;
      if (kept)
        out += text[0];
      else if (text[0] == '\n')
        out += "\\n";
      else if (text[0] == '\t')
        out += "\\t";
      else
        out += fmt::format("\\x{:02x}", code);
    } else if (needs_escape(character.code)) {
      out += fmt::format("\\u{:04x}", character.code);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text, Lines lines) { return escape_text(text, lines, nullptr); }

std::string StreamEscape::add(std::string_view piece) {
  const std::string text = waiting_ + std::string(piece);
  waiting_.clear();
  return escape_text(text, Lines::kept, &waiting_);
}

std::string StreamEscape::finish() {
  const std::string rest = escaped(waiting_, Lines::kept);
  waiting_.clear();
  return rest;
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most > 3 ? most - 3 : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace some
