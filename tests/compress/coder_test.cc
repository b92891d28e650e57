// The parts of the coder: integer arithmetic, the interval, the token tree, context mixing.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compress/binary_coder.h"
#include "compress/logistic.h"
#include "compress/text_mixer.h"
#include "expect_error.h"
#include "text/bpe_train.h"

namespace some {
namespace {

TEST(Logistic, TablesAreTheFunctions) {
  for (int x = -max_log_odds; x <= max_log_odds; ++x) {
    const double exact = 65536 / (1 + std::exp(-x / 256.0));
    ASSERT_NEAR(squash(x), std::clamp(exact, 1.0, 65535.0), 0.75) << x;
    ASSERT_EQ(squash(x) + squash(-x), 65536) << x;
  }
  EXPECT_EQ(squash(1 << 30), squash(max_log_odds));
  EXPECT_EQ(squash(-(1 << 30)), squash(-max_log_odds));
  for (std::uint32_t p = 64; p < 65536 - 64; ++p) {
    const double exact = 256 * std::log(p / (65536.0 - p)), unit = 256 * 65536.0 / (p * (65536.0 - p));
    ASSERT_NEAR(stretch(p), exact, 1 + unit) << p;
  }
  for (std::uint32_t p = 1; p < 65535; ++p) ASSERT_LE(stretch(p), stretch(p + 1)) << p;
}

TEST(Logistic, ExponentialIsExactToItsLastBits) {
  for (std::uint64_t x = 0; x < (1u << 24); x += 997) {
    const double exact = std::exp(-static_cast<double>(x) / 65536) * 4294967296.0;
    ASSERT_NEAR(static_cast<double>(exp_minus(x)), exact, 2) << x;
  }
  EXPECT_EQ(exp_minus(std::uint64_t{1} << 24), 0u);
  EXPECT_EQ(exp_minus(~std::uint64_t{0}), 0u);
}

TEST(BinaryCoder, RoundTripsAtTheCostOfTheProbabilities) {
  std::mt19937 dice(7);
  for (const int extreme : {0, 1, 2}) {
    std::vector<std::pair<bool, std::uint32_t>> decisions;
    double bits = 0;
    for (int i = 0; i < 40000; ++i) {
      const std::uint32_t p = extreme == 0 ? 1 + dice() % 65535 : extreme == 1 ? (dice() % 2 ? 1 : 65535) : 65535;
      const bool one = dice() % 65536 < p;
      decisions.emplace_back(one, p);
      bits -= std::log2((one ? p : 65536 - p) / 65536.0);
    }
    BinaryEncoder encoder;
    for (const auto& [one, p] : decisions) encoder.encode(one, p);
    encoder.finish();
    EXPECT_LT(static_cast<double>(encoder.bytes().size()), bits / 8 * 1.0001 + 3);
    BinaryDecoder decoder(encoder.bytes());
    for (std::size_t i = 0; i < decisions.size(); ++i)
      ASSERT_EQ(decoder.decode(decisions[i].second), decisions[i].first) << i;
  }
}

TEST(BinaryCoder, TheLeastLikelyDecisionsInARow) {
  BinaryEncoder encoder;
  for (int i = 0; i < 1000; ++i) encoder.encode(i % 2 == 0, i % 2 == 0 ? 1 : 65535);
  encoder.finish();
  EXPECT_NEAR(static_cast<double>(encoder.bytes().size()), 2000, 4);
  BinaryDecoder decoder(encoder.bytes());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(decoder.decode(i % 2 == 0 ? 1 : 65535), i % 2 == 0);
}

Tokenizer small_tokenizer(TokenizerKind kind) {
  BpeTrainOptions options;
  options.kind = kind;
  options.vocab_size = 400;
  int left = 3;
  const std::function<bool(std::string&)> next = [&](std::string& text) {
    text = "the cat sat on the mat and the dog sat on the cat; a mat, a cat, the hat";
    return left-- > 0;
  };
  return train_bpe(options, next);
}

TEST(TokenTree, EveryTokenHasItsOwnDecisions) {
  const TokenTree tree(small_tokenizer(TokenizerKind::bytelevel));
  EXPECT_GT(tree.size(), 256);
  for (int wanted = 0; wanted < tree.size(); ++wanted) {
    TokenTree::Node node = tree.root();
    std::string bytes;
    for (;;) {
      const TokenTree::Decision decision =
          tree.next(node, [&](unsigned char byte) { bytes.push_back(static_cast<char>(byte)); });
      if (decision.question == TokenTree::Question::none) break;
      ASSERT_LT(node.low, decision.split);
      ASSERT_LT(decision.split, node.high);
      TokenTree::take(node, decision, wanted >= decision.split);
    }
    ASSERT_EQ(node.low, wanted);
    ASSERT_EQ(node.high, wanted + 1);
    ASSERT_EQ(bytes, tree.bytes(wanted));
    ASSERT_EQ(tree.place(tree.token(wanted)), wanted);
  }
  EXPECT_EQ(tree.place(-1), -1);
  EXPECT_EQ(tree.place(1 << 20), -1);
}

TEST(TokenTree, RefusesVocabulariesThatLoseBytes) {
  EXPECT_ERROR(TokenTree(small_tokenizer(TokenizerKind::whitespace)), Code::tokenizer_unsupported, "whitespace");
}

// Every probability from the mixer is valid, and the mixer learns regular input.
TEST(ContextMixer, LearnsAPattern) {
  ContextMixer mixer(
      {.contexts = 2, .table_bits = 8, .kinds = 2, .extra = 1, .selectors = {4, 2}, .final_selector = 2});
  double bits = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t contexts[2] = {static_cast<std::uint64_t>(i % 3), static_cast<std::uint64_t>(i % 2) + 50};
    const std::int32_t extra[1] = {i % 5 == 0 ? 100000 : -100000};
    const int selected[2] = {i % 4, i % 2};
    const std::uint32_t p = mixer.predict({contexts, extra, selected, i % 2, i % 2});
    ASSERT_GE(p, 1u);
    ASSERT_LE(p, 65535u);
    const bool one = i % 3 == 0;
    if (i >= 1000) bits -= std::log2((one ? p : 65536 - p) / 65536.0);
    mixer.update(one);
  }
  EXPECT_LT(bits, 60);  // of 3,000 decisions
}

}  // namespace
}  // namespace some
