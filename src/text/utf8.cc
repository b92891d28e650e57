#include "text/utf8.h"

#include <utf8proc.h>

#include <cstring>
#include <vector>

namespace some {

CodePoint decode_utf8(const char* begin, const char* end) {
  const auto* p = reinterpret_cast<const unsigned char*>(begin);
  const std::size_t left = static_cast<std::size_t>(end - begin);
  const std::uint32_t lead = p[0];
  if (lead < 0x80) return {lead, 1};
  const auto continues = [&](std::size_t i) { return (p[i] & 0xC0) == 0x80; };
  if (lead >= 0xC2 && lead <= 0xDF) {
    if (left >= 2 && continues(1)) return {((lead & 0x1F) << 6) | (p[1] & 0x3Fu), 2};
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    if (left >= 3 && continues(1) && continues(2)) {
      const std::uint32_t value = ((lead & 0x0F) << 12) | ((p[1] & 0x3Fu) << 6) | (p[2] & 0x3Fu);
      if (value >= 0x800 && (value < 0xD800 || value > 0xDFFF)) return {value, 3};
    }
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    if (left >= 4 && continues(1) && continues(2) && continues(3)) {
      const std::uint32_t value =
          ((lead & 0x07) << 18) | ((p[1] & 0x3Fu) << 12) | ((p[2] & 0x3Fu) << 6) | (p[3] & 0x3Fu);
      if (value >= 0x10000 && value <= 0x10FFFF) return {value, 4};
    }
  }
  return {invalid_byte, 1};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* p = begin;
  while (p < end) {
    // Fast path: eight ASCII bytes at a time, which covers most text.
    while (end - p >= 8) {
      std::uint64_t eight;
      std::memcpy(&eight, p, 8);
      if ((eight & 0x8080808080808080ull) != 0) break;
      p += 8;
    }
    if (p == end) break;
    const CodePoint point = decode_utf8(p, end);
    if (point.value == invalid_byte) return static_cast<std::size_t>(p - begin);
    p += point.length;
  }
  return std::nullopt;
}

void append_utf8(std::string& text, std::uint32_t code_point) {
  if (code_point < 0x80) {
    text.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    text.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else if (code_point < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    text.push_back(static_cast<char>(0x80 | ((code_point >> 6) & 0x3F)));
    text.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else {
    text.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    text.push_back(static_cast<char>(0x80 | ((code_point >> 12) & 0x3F)));
    text.push_back(static_cast<char>(0x80 | ((code_point >> 6) & 0x3F)));
    text.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  }
}

namespace {

// True for Other_Alphabetic characters that are neither letters nor marks: letters in circles and squares. utf8proc
// only has general categories.
bool is_enclosed_letter(std::uint32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

std::uint8_t classes_of(std::uint32_t c) {
  std::uint8_t classes = 0;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: classes = class_letter | class_word; break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: classes = class_number | class_word; break;
    case UTF8PROC_CATEGORY_NO: classes = class_number; break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC: classes = class_word; break;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: classes = class_space; break;
    default: break;
  }
  if ((c >= 0x09 && c <= 0x0D) || c == 0x85) classes = class_space;
  const bool joins = c == 0x200C || c == 0x200D;
  if (joins || is_enclosed_letter(c)) classes |= class_word;
  return classes;
}

}  // namespace

const std::uint8_t* char_classes() {
  static const std::vector<std::uint8_t> table = [] {
    std::vector<std::uint8_t> classes(0x110000);
    for (std::uint32_t c = 0; c < 0x110000; ++c) classes[c] = classes_of(c);
    return classes;
  }();
  return table.data();
}

}  // namespace some
