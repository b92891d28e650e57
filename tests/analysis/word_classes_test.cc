#include "analysis/word_classes.h"

#include <gtest/gtest.h>

#include "text/bpe_train.h"

namespace some {
namespace {

std::string classes_of(const std::string& text) {
  std::string out;
  for (const ClassifiedWord& word : classify_text(text)) {
    if (word.word_class == WordClass::space) continue;
    out += (out.empty() ? "" : " ") + text.substr(word.begin, word.end - word.begin) + "/" + name_of(word.word_class);
  }
  return out;
}

TEST(WordClasses, OfAPlainSentence) {
  EXPECT_EQ(classes_of("The little dogs ran to a big house."),
            "The/determiner little/adjective dogs/noun ran/verb to/preposition a/determiner big/adjective house/noun "
            "./punctuation");
  EXPECT_EQ(classes_of("She stopped, and he was running slowly."),
            "She/pronoun stopped/verb ,/punctuation and/conjunction he/pronoun was/verb running/verb slowly/adverb "
            "./punctuation");
}

TEST(WordClasses, NamesAreWordsWithACapitalInsideASentence) {
  EXPECT_EQ(classes_of("One day Zorbina met Rose."),
            "One/number day/noun Zorbina/name met/verb Rose/name ./punctuation");
  // At the start of a sentence only unknown words are names.
  EXPECT_EQ(classes_of("Zorbina smiled. Dogs bark."),
            "Zorbina/name smiled/verb ./punctuation Dogs/noun bark/verb ./punctuation");
}

TEST(WordClasses, WordsOfTwoKindsGoByTheWordBefore) {
  EXPECT_EQ(classes_of("They walk. The walk ended."),
            "They/pronoun walk/verb ./punctuation The/determiner walk/noun ended/verb ./punctuation");
  EXPECT_EQ(classes_of("the glimp"), "the/determiner glimp/noun");
  EXPECT_EQ(classes_of("they glimp"), "they/pronoun glimp/verb");
}

TEST(WordClasses, ApostrophesAndNumbers) {
  EXPECT_EQ(classes_of("Tom's dog didn't eat 12 eggs"), "Tom's/name dog/noun didn't/verb eat/verb 12/number eggs/noun");
}

TEST(WordClasses, PartsOfAWordHaveItsClass) {
  // Tokens of single letters: each belongs to the word that contains it, with both kinds of tokenizer.
  const std::vector<std::string> documents{"the dog ran. the dog ran to the house."};
  for (const TokenizerKind kind : {TokenizerKind::bytelevel, TokenizerKind::whitespace}) {
    BpeTrainOptions options;
    options.kind = kind;
    options.vocab_size = 270;
    std::size_t at = 0;
    const Tokenizer tokenizer = train_bpe(options, [&](std::string& story) {
      if (at == documents.size()) return false;
      story = documents[at++];
      return true;
    });
    const std::string text = "the dog ran.";
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> lengths;
    tokenizer.encode(text, ids, lengths);
    const std::vector<std::uint16_t> bytes(lengths.begin(), lengths.end());
    const std::vector<WordClass> classes = classify_tokens(tokenizer, ids, bytes);
    ASSERT_EQ(classes.size(), ids.size());
    std::size_t end = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      end += lengths[i];
      const WordClass expected = end <= 3    ? WordClass::determiner
                                 : end <= 7  ? WordClass::noun
                                 : end <= 11 ? WordClass::verb
                                             : WordClass::punctuation;
      EXPECT_EQ(name_of(classes[i]), std::string(name_of(expected)))
          << tokenizer.token(ids[i]) << " of kind " << tokenizer_kind_name(kind);
    }
  }
}

}  // namespace
}  // namespace some
