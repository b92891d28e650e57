// Evaluation of documents longer than a sequence.
#include "evaluation/evaluate.h"

#include <gtest/gtest.h>

#include "model/sample.h"
#include "runs/run.h"

namespace some {
namespace {

std::vector<std::int32_t> long_text(int tokens) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < tokens; ++i) ids.push_back(3 + (i * i + 5 * i) % 16);
  return ids;
}

// Returns the loss of the last token of `ids`, read as a separate document.
double last_loss(Model& model, const std::vector<std::int32_t>& ids) {
  const TokenData data = make_token_data({ids});
  BatchOptions options;
  options.seq_len = model.config().seq_len;
  const Batch batch = make_batch(data, std::vector<std::int64_t>{0}, options);
  model.context().arena->reset();
  const std::vector<double> nll = read_vector(model.evaluate(upload(model.context(), batch), StepSettings{}));
  return nll[nll.size() - 2];
}

TEST(Evaluate, SplitTextIsReadWithASlidingContext) {
  TrainConfig train;
  train.device = on_cpu;
  train.precision = PrecisionChoice::f64;
  for (const int seq_len : {6, 7}) {
    ModelConfig config = small_config();
    config.seq_len = seq_len;
    Model model(recipe_context(train, Host()), config, false);
    const std::vector<std::int32_t> ids = long_text(40);
    const TokenData data = make_token_data({ids, {4, 5, 6}});
    EvaluateOptions options;
    options.rows = 3;
    options.long_documents = LongDocuments::split;
    double expected = last_loss(model, {4, 5}) + last_loss(model, {4, 5, 6});
    const int step = seq_len / 2;
    for (int t = 1; t < 40; ++t) {
      // Windows begin every `step` tokens; a token is predicted in the first one that reaches it.
      const int begin = t < seq_len ? 0 : ((t - seq_len) / step + 1) * step;
      ASSERT_TRUE(begin == 0 || t - begin >= (seq_len + 1) / 2);
      expected += last_loss(model, {ids.begin() + begin, ids.begin() + t + 1});
    }
    const Evaluation split = evaluate(model, data, options);
    EXPECT_EQ(split.tokens, 39 + 2);
    EXPECT_EQ(split.documents, 2);
    EXPECT_NEAR(split.loss, expected / 41, 1e-9);
    // Every predicted position counts once in the load of the experts, also if padding counts.
    double choices = 0;
    for (const double count : split.layers[0].counts) choices += count;
    EXPECT_EQ(choices, 41 * config.top_k);
    options.count_pads = true;
    EXPECT_NEAR(evaluate(model, data, options).loss, expected / 41, 1e-9);
    options.count_pads = false;

    options.long_documents = LongDocuments::cut;
    const Evaluation cut = evaluate(model, data, options);
    EXPECT_EQ(cut.tokens, seq_len - 1 + 2);
    // Documents that fit are read the same way for every setting of long documents.
    const TokenData fits = make_token_data({{ids.begin(), ids.begin() + seq_len}, {4, 5, 6}});
    EXPECT_EQ(evaluate(model, fits, options).loss, cut.loss);
    options.long_documents = LongDocuments::split;
    EXPECT_EQ(evaluate(model, fits, options).loss, cut.loss);
  }
}

}  // namespace
}  // namespace some
