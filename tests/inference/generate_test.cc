// Texts longer than the model's sequence.
#include "inference/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/tiny_run.h"
#include "expect_error.h"
#include "ops/elementwise.h"

namespace some {
namespace {

class Generate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    train_tiny(*folder_, {"model.seq_len=17"});
  }
  static void TearDownTestSuite() { delete folder_; }
  static OpenedRun open() { return open_tiny(*folder_ / "run"); }
  static TemporaryFolder* folder_;
};
TemporaryFolder* Generate::folder_ = nullptr;

// Returns the most likely token after `ids`, read from the beginning.
TokenId likeliest(OpenedRun& run, const std::vector<TokenId>& ids) {
  Model::Cache cache = run.model->make_cache(1, run.recipe.model.seq_len);
  std::vector<std::int32_t> slots(ids.size(), 0), positions(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
  run.ctx->arena->reset();
  std::vector<double> logits = read_vector(
      run.model->decode(cache, ids, slots, positions, {static_cast<std::int32_t>(ids.size()) - 1}, StepSettings{}));
  logits[static_cast<std::size_t>(run.tokenizer.pad_id())] = -INFINITY;
  logits[static_cast<std::size_t>(run.tokenizer.eos_id())] = -INFINITY;
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_F(Generate, EveryTokenIsPredictedFromTheSequenceEvaluationWouldUse) {
  OpenedRun run = open();
  GenerateOptions options;
  options.temperature = 0;
  options.stop_at_eos = false;
  options.max_tokens = 60;
  // A short prompt, one that fills the sequence, and a longer one, in one batch, so that they slide at different times.
  std::string longer;
  for (int i = 0; i < 12; ++i) longer += "The fox went to the river. ";
  const std::vector<std::string> prompts = {"Once", "One day a little girl went to the park to play", longer};
  const auto texts = generate(*run.model, run.tokenizer, prompts, options);
  const std::size_t seq_len = 17, step = 8;
  ASSERT_GT(texts[2].prompt.size(), 2 * seq_len);
  for (const Generated& text : texts) {
    ASSERT_EQ(text.tokens.size(), 60u);
    EXPECT_EQ(text.stopped, "length");
    std::vector<TokenId> all = text.prompt;
    all.insert(all.end(), text.tokens.begin(), text.tokens.end());
    for (std::size_t n = text.prompt.size(); n < all.size(); ++n) {
      const std::size_t begin = n < seq_len ? 0 : ((n - seq_len) / step + 1) * step;
      ASSERT_TRUE(begin == 0 || n - begin >= (seq_len + 1) / 2);
      ASSERT_LT(n - begin, seq_len);
      ASSERT_EQ(likeliest(run, {all.begin() + static_cast<std::ptrdiff_t>(begin),
                                all.begin() + static_cast<std::ptrdiff_t>(n)}),
                all[n])
          << n;
    }
  }
}

TEST_F(Generate, WithoutSlidingTheSequenceIsTheEnd) {
  OpenedRun run = open();
  GenerateOptions options;
  options.slide = false;
  options.stop_at_eos = false;
  const Generated text = generate(*run.model, run.tokenizer, {"Once"}, options).front();
  EXPECT_EQ(text.stopped, "context");
  EXPECT_EQ(text.prompt.size() + text.tokens.size(), 17u);
  EXPECT_ERROR((generate(*run.model, run.tokenizer, {std::string(400, 'x')}, options)), Code::text_too_long, "1");
}

TEST_F(Generate, CanBeStoppedAfterAnyToken) {
  OpenedRun run = open();
  GenerateOptions options;
  options.stop_at_eos = false;
  int asked = 0;
  options.stop = [&] { return ++asked == 5; };
  const auto texts = generate(*run.model, run.tokenizer, {"Once", "The"}, options);
  for (const Generated& text : texts) {
    EXPECT_EQ(text.stopped, "asked");
    EXPECT_EQ(text.tokens.size(), 5u);
  }
}

// Text that is read again after sliding is not learned from again: updates happen where they would without it.
TEST_F(Generate, KeysLearnFromEveryTokenOnce) {
  OpenedRun run = open();
  GenerateOptions options;
  options.stop_at_eos = false;
  options.max_tokens = 60;
  options.adapt_window = 5;
  const Generated text = generate(*run.model, run.tokenizer, {"Once"}, options).front();
  const std::int64_t steps = run.model->layers()[0].keys.steps;
  OpenedRun fresh = open();
  // The last token is generated, but not read.
  const auto read = static_cast<std::int64_t>(text.prompt.size() + text.tokens.size()) - 1;
  EXPECT_EQ(steps - fresh.model->layers()[0].keys.steps, read / 5);
}

}  // namespace
}  // namespace some
