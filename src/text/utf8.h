// UTF-8: validation, decoding, and the character classes that split text into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace some {

// Returns the offset of the first byte that is not part of well-formed UTF-8 (Unicode 3.9: no overlong forms, no
// surrogates, nothing above U+10FFFF); empty if all of the text is well-formed.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// One step through a text: a code point and its length in bytes. A byte that is not part of well-formed UTF-8 is a
// separate step with the code point `invalid_byte`, so that decoding never fails and never skips a byte.
inline constexpr std::uint32_t invalid_byte = 0xFFFFFFFFu;
struct CodePoint {
  std::uint32_t value;
  std::uint32_t length;
};
// Decodes the first character; requires begin < end.
CodePoint decode_utf8(const char* begin, const char* end);

void append_utf8(std::string& text, std::uint32_t code_point);

// Character classes of regular expressions, as bit flags.
enum CharClass : std::uint8_t {
  class_letter = 1,  // \p{L}
  class_number = 2,  // \p{N}
  class_space = 4,   // \s: White_Space
  class_word = 8,    // \w: Alphabetic, marks, decimal digits, connector punctuation, join controls (UTS 18)
};
// Returns a table with one entry per code point, built on first use. Indices must be below 0x110000.
const std::uint8_t* char_classes();

// Class and length of the character at `begin`. A bad byte has no class, like a symbol.
struct ClassStep {
  std::uint8_t classes;
  std::uint32_t length;
};
inline ClassStep class_at(const char* begin, const char* end, const std::uint8_t* classes) {
  const auto byte = static_cast<unsigned char>(*begin);
  if (byte < 0x80) return {classes[byte], 1};
  const CodePoint point = decode_utf8(begin, end);
  return {point.value == invalid_byte ? std::uint8_t{0} : classes[point.value], point.length};
}

}  // namespace some
