// Word classes of English story text from a small hand-made list and a few rules: enough to ask whether an expert is
// one for nouns, no grammar. Words of two kinds ("play") go by the word before them; what is not known and has no
// telling ending is `other`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace some {

enum class WordClass : std::uint8_t {
  noun,
  name,
  verb,
  pronoun,
  determiner,
  preposition,
  conjunction,
  adjective,
  adverb,
  number,
  punctuation,
  space,
  other
};
inline constexpr int word_classes = 13;
const char* name_of(WordClass word_class);

// The class of each word or mark of a text, in order, with its first and last+1 byte.
struct ClassifiedWord {
  std::size_t begin = 0, end = 0;
  WordClass word_class = WordClass::other;
};
std::vector<ClassifiedWord> classify_text(std::string_view text);

// The class of the word each token belongs to. byte_lengths: as Tokenizer::encode gives them (they tell where blanks
// were, which whitespace tokenizers lose). Special tokens are `other`.
std::vector<WordClass> classify_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                                       std::span<const std::uint16_t> byte_lengths);

}  // namespace some
