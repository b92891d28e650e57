#include "inference/text_stream.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "inference/synthetic_tokenizer.h"
#include "text/utf8.h"

namespace some {
namespace {

// Ã and ¶ are the printable forms of the bytes C3 and B6, which together encode ö; Ġ is a space.
const std::vector<std::string> letters = {"a", "b", "ab", "ba", "Ġ", "Ã", "¶", "aĠb", "bbb"};

TEST(TextStream, GivesOutWholeCharacters) {
  const Tokenizer tokenizer = byte_tokenizer(letters);
  TextStream text(tokenizer, {});
  EXPECT_EQ(text.add(3), "a");
  EXPECT_EQ(text.add(8), "");  // the first byte of ö
  EXPECT_EQ(text.add(9), "ö");
  EXPECT_EQ(text.add(8), "");
  EXPECT_EQ(text.add(4),
            "\xC3"
            "b");  // not a character: passed on unchanged
  EXPECT_EQ(text.add(8), "");
  EXPECT_EQ(text.finish(), "\xC3");
}

TEST(TextStream, FindsStopStringsAcrossTokens) {
  const Tokenizer tokenizer = byte_tokenizer(letters);
  TextStream text(tokenizer, {"b a", "abba"});
  EXPECT_EQ(text.add(5), "");    // "ab": both stop strings may begin
  EXPECT_EQ(text.add(7), "a");   // "ab ": only "b a"
  EXPECT_EQ(text.add(4), "b ");  // neither; but this "b" may begin "b a" again
  EXPECT_EQ(text.stopped(), std::nullopt);
  EXPECT_EQ(text.text(), "ab b");
}

TEST(TextStream, SpecialTokensHaveNoText) {
  const Tokenizer tokenizer = byte_tokenizer(letters);
  TextStream text(tokenizer, {});
  EXPECT_EQ(text.add(2), "");
  EXPECT_EQ(text.add(3), "a");
}

TEST(TextStream, WordsAreSeparatedBySpaces) {
  const Tokenizer tokenizer = synthetic_tokenizer(9);
  TextStream after(tokenizer, {}), first(tokenizer, {"3 w4"}, true);
  EXPECT_EQ(after.add(3), " w3");
  EXPECT_EQ(first.add(3), "w");
  EXPECT_EQ(first.add(4), "");
  EXPECT_EQ(first.stopped(), 0u);
  EXPECT_EQ(first.finish(), "");
  EXPECT_EQ(first.text(), "w");
}

// All pieces together are the text before the first completed stop string (of several completed by one token, the one
// that begins first), and each piece consists of whole characters.
TEST(TextStream, PiecesAreTheTextBeforeTheFirstStopString) {
  const Tokenizer tokenizer = byte_tokenizer(letters);
  const RandomStream random = random_stream(3, "text");
  std::uint64_t next = 0;
  const auto below = [&](std::uint32_t n) { return static_cast<int>(random.below(next++, n)); };
  int stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (int i = below(3); i > 0; --i) {
      std::string stop;
      for (int j = 1 + below(5); j > 0; --j) stop += "ab "[below(3)];
      stops.push_back(stop);
    }
    std::string whole, pieces;
    std::size_t cut = std::string::npos;
    TextStream text(tokenizer, stops);
    for (int i = below(20); i > 0; --i) {
      const TokenId token = 3 + below(static_cast<std::uint32_t>(letters.size()));
      if (token == 9) continue;  // second bytes come after first ones
      std::vector<TokenId> tokens{token};
      if (token == 8) tokens.push_back(9);
      for (const TokenId one : tokens) {
        if (cut == std::string::npos) {
          whole += tokenizer.token_bytes(one);
          for (const std::string& stop : stops) cut = std::min(cut, whole.find(stop));
        }
        const std::string piece = text.add(one);
        ASSERT_FALSE(find_invalid_utf8(piece)) << piece;
        pieces += piece;
      }
    }
    ASSERT_EQ(text.stopped().has_value(), cut != std::string::npos);
    pieces += text.finish();
    ASSERT_EQ(pieces, whole.substr(0, cut)) << "round " << round;
    ASSERT_EQ(text.text(), pieces);
    stopped += text.stopped().has_value();
  }
  EXPECT_GT(stopped, 200);
}

}  // namespace
}  // namespace some
