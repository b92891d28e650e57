// Word classes of English narrative text from a small manually written lexicon and a few rules: sufficient to test
// whether an expert prefers nouns, not a full part-of-speech tagger. Ambiguous words ("play") are resolved by the
// preceding word; unknown words without a characteristic ending are `other`.
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

// Word or punctuation mark with its class; bytes [begin, end) of the text.
struct ClassifiedWord {
  std::size_t begin = 0, end = 0;
  WordClass word_class = WordClass::other;
};
std::vector<ClassifiedWord> classify_text(std::string_view text);

// Returns the class of the word that each token belongs to. byte_lengths: as returned by Tokenizer::encode (they show
// where spaces were, which whitespace tokenizers drop). Special tokens are `other`.
std::vector<WordClass> classify_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                                       std::span<const std::uint16_t> byte_lengths);

}  // namespace some
