// Pre-tokenization: splits a text into words, across which BPE never merges.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace some {

// Each function returns the end of the word that starts at `begin`; requires begin < end. The words of the bytelevel
// kind cover the text without gaps; the whitespace kind skips whitespace between words.

// Matches \w+|[^\w\s]+ ; `begin` must not point to whitespace.
inline const char* whitespace_word_end(const char* begin, const char* end, const std::uint8_t* classes) {
  const ClassStep first = class_at(begin, end, classes);
  const char* p = begin + first.length;
  const std::uint8_t mask = class_word | class_space;
  const std::uint8_t wanted = first.classes & mask;
  while (p < end) {
    const ClassStep step = class_at(p, end, classes);
    if ((step.classes & mask) != wanted) break;
    p += step.length;
  }
  return p;
}

inline const char* skip_whitespace(const char* begin, const char* end, const std::uint8_t* classes) {
  while (begin < end) {
    const ClassStep step = class_at(begin, end, classes);
    if (!(step.classes & class_space)) break;
    begin += step.length;
  }
  return begin;
}

// Matches 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
inline const char* bytelevel_word_end(const char* begin, const char* end, const std::uint8_t* classes) {
  constexpr std::uint8_t mask = class_letter | class_number | class_space;
  if (*begin == '\'' && end - begin >= 2) {
    const char a = begin[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return begin + 2;
    if (end - begin >= 3) {
      const char b = begin[2];
      if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return begin + 3;
    }
  }
  const char* p = begin;
  ClassStep step = class_at(p, end, classes);
  if (*p == ' ' && p + 1 < end) {
    const ClassStep after = class_at(p + 1, end, classes);
    if (!(after.classes & class_space)) {
      ++p;
      step = after;
    }
  }
  if (!(step.classes & class_space)) {
    const std::uint8_t wanted = step.classes & mask;
    do {
      p += step.length;
      if (p == end) break;
      step = class_at(p, end, classes);
    } while ((step.classes & mask) == wanted);
    return p;
  }
  // Whitespace: all of it at the end of the text; otherwise all except the last character, which may be the space that
  // starts the next word. A single whitespace character is a word.
  const char* last = p;
  while (p < end) {
    step = class_at(p, end, classes);
    if (!(step.classes & class_space)) return last > begin ? last : p;
    last = p;
    p += step.length;
  }
  return p;
}

// Returns the end of the first part of a long text, which starts at `begin` and has about `size` bytes. The end is
// before whitespace that follows another character: words of both kinds end there in any context, so the words (and
// byte lengths) of the parts, concatenated, equal those of the whole text.
inline std::size_t part_end(std::string_view text, std::size_t begin, std::size_t size) {
  if (text.size() - begin <= size) return text.size();
  const std::uint8_t* const classes = char_classes();
  const char* const end = text.data() + text.size();
  std::size_t at = begin + size;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;  // start of a character
  for (bool after_space = true; at < text.size();) {
    const ClassStep step = class_at(text.data() + at, end, classes);
    const bool space = (step.classes & class_space) != 0;
    if (space && !after_space) return at;
    after_space = space;
    at += step.length;
  }
  return text.size();
}

// Calls visit(std::string_view word) for each word, in order.
template <typename Visit>
void for_each_word(TokenizerKind kind, std::string_view text, Visit&& visit) {
  const std::uint8_t* const classes = char_classes();
  const char* p = text.data();
  const char* const end = p + text.size();
  if (kind == TokenizerKind::bytelevel) {
    while (p < end) {
      const char* const word_end = bytelevel_word_end(p, end, classes);
      visit(std::string_view(p, static_cast<std::size_t>(word_end - p)));
      p = word_end;
    }
    return;
  }
  for (;;) {
    p = skip_whitespace(p, end, classes);
    if (p == end) return;
    const char* const word_end = whitespace_word_end(p, end, classes);
    visit(std::string_view(p, static_cast<std::size_t>(word_end - p)));
    p = word_end;
  }
}

}  // namespace some
