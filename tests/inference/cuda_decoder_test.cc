// The kernels of a decoding step on a GPU: compared with Model::decode, and bit-identical in every batch.
#include "inference/cuda_decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "ops/elementwise.h"

namespace some {
namespace {

ModelConfig dense() {
  ModelConfig config;
  config.vocab = 500;
  config.d_model = 128;
  config.heads = 2;
  config.layers = 3;
  config.seq_len = 100;
  config.ffn = Ffn::dense;
  config.dense_mult = 1.5;
  return config;
}

ModelConfig with_convolution() {
  ModelConfig config = dense();
  config.conv = 3;
  config.dense_mult = 1.4375;  // 184 hidden units: not a multiple of 128
  return config;
}

ModelConfig modulated() {
  ModelConfig config = dense();
  config.ffn = Ffn::some;
  config.experts = 6;
  config.d_ffn = 184;
  config.top_k = 3;
  config.router = RouterKind::linear;
  config.query_dim = 64;
  config.output_proj = OutputProj::modulated;
  config.temperature = Temperature::learned;
  config.train_temp = 0.3;
  return config;
}

ModelConfig with_token_shift() {
  ModelConfig config = modulated();
  config.token_shift = 3;
  config.modulation = ModulationPlace::additive;
  config.keys.balance_rate = 0.01;
  return config;
}

ModelConfig modulated_with_convolution() {
  ModelConfig config = modulated();
  config.conv = 2;
  return config;
}

class CudaDecoder : public testing::TestWithParam<ModelConfig (*)()> {
 protected:
  void SetUp() override {
    if (!some::cuda::available()) GTEST_SKIP() << "needs a GPU: " << some::cuda::unavailable_reason_text();
    ctx_ = make_context("cuda", "bf16");
    model_ = std::make_unique<Model>(ctx_, GetParam()(), false);
    // Perturbs parameters initialized to zero or one, as training would.
    const RandomStream random = random_stream(3, "parameters");
    std::uint64_t n = 0;
    for (const ParameterStore::Entry& entry : model_->parameters().entries()) {
      std::vector<double> values = read_vector(model_->parameters().view(model_->parameters().value, entry));
      Tensor changed = Tensor::empty(entry.shape, DType::f32);
      for (std::size_t i = 0; i < values.size(); ++i)
        changed.data<float>()[i] = static_cast<float>(values[i]) + 0.05F * random.symmetric(n++);
      model_->parameters().set(*ctx_, entry.name, changed);
    }
    model_->parameters().refresh_compute(*ctx_);
    DecoderOptions options;
    options.slots = 80;
    decoder_ = make_cuda_decoder(*model_, options);
    if (!decoder_) GTEST_SKIP() << "needs a GPU of the Hopper generation";
  }

  static TokenId token(int sequence, int position) {
    return 3 + (sequence * 131 + position * position * 7 + position) % 490;
  }
  static int prompt_length(int sequence) { return 1 + sequence * 17 % 60; }

  // Returns tokens and log probabilities of `count` sequences of a set, generated together; steps are submitted ahead.
  std::vector<std::vector<DecodedRow>> generate(int first, int count, int steps, const SamplingOptions& sampling) {
    std::vector<std::vector<DecodedRow>> out(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      SlotSequence sequence{sampling, {}, nullptr, {}, {}};
      sequence.sampling.stream = static_cast<std::uint64_t>(first + i);
      for (int p = 0; p < prompt_length(first + i); ++p) sequence.prompt.push_back(token(first + i, p));
      decoder_->open(i, sequence);
    }
    int flying = 0;
    const auto collect = [&] {
      const DecodeResult result = decoder_->collect();
      --flying;
      for (int i = 0; i < count; ++i)
        out[static_cast<std::size_t>(i)].push_back(result.wanted[static_cast<std::size_t>(i)]);
    };
    for (int step = 0; step < steps; ++step) {
      DecodeBatch batch;
      for (int i = 0; i < count; ++i) {
        const int length = prompt_length(first + i);
        if (step == 0) {
          for (int p = 0; p < length; ++p) batch.add(token(first + i, p), i, p);
        } else {
          batch.add(last_drawn, i, length + step - 1);
        }
        WantedRow want;
        want.row = static_cast<std::int32_t>(batch.rows()) - 1;
        want.number = step;
        want.logprobs = 2;
        batch.wanted.push_back(want);
      }
      if (flying == decoder_->max_in_flight()) collect();
      decoder_->submit(batch);
      ++flying;
    }
    while (flying > 0) collect();
    for (int i = 0; i < count; ++i) decoder_->close(i);
    return out;
  }

  std::shared_ptr<Context> ctx_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Decoder> decoder_;
};

// Scores given tokens, first several rows per slot, then one row per slot.
TEST_P(CudaDecoder, ComputesTheLogitsOfTheModel) {
  DecoderOptions options;
  options.slots = 80;
  const std::unique_ptr<Decoder> plain = make_model_decoder(*model_, options);
  for (const int count : {1, 3, 20, 70}) {
    for (int i = 0; i < count; ++i) {
      decoder_->open(i, {});
      plain->open(i, {});
    }
    double worst = 0;
    for (int step = 0; step < 4; ++step) {
      DecodeBatch batch;
      for (int i = 0; i < count; ++i) {
        const int length = prompt_length(i);
        for (int p = step == 0 ? 0 : length + step - 1; p < length + step; ++p) batch.add(token(i, p), i, p);
        WantedRow want;
        want.row = static_cast<std::int32_t>(batch.rows()) - 1;
        want.kind = WantedRow::Kind::score;
        want.target = token(i, length + step);
        want.logprobs = 3;
        batch.wanted.push_back(want);
      }
      decoder_->submit(batch);
      plain->submit(batch);
      const DecodeResult found = decoder_->collect(), expected = plain->collect();
      for (std::size_t i = 0; i < found.wanted.size(); ++i) {
        EXPECT_TRUE(found.wanted[i].finite);
        EXPECT_EQ(found.wanted[i].token, batch.wanted[i].target);
        ASSERT_EQ(found.wanted[i].top.size(), 3u);
        worst = std::max(worst, std::abs(found.wanted[i].logprob - expected.wanted[i].logprob));
        worst = std::max(worst, std::abs(found.wanted[i].top[0].logprob - expected.wanted[i].top[0].logprob));
      }
    }
    EXPECT_LT(worst, 0.06) << count << " sequences";  // logits of about 1, activations rounded to 8 bits
    EXPECT_GT(worst, 0) << "the decoder is Model::decode";
  }
}

TEST_P(CudaDecoder, ASequenceHasTheSameTokensInEveryBatch) {
  SamplingOptions drawn, filtered, greedy;
  filtered.top_k = 40;
  filtered.top_p = 0.9;
  filtered.min_p = 0.01;
  filtered.repetition_penalty = 1.2;
  filtered.frequency_penalty = 0.3;
  filtered.logit_bias = {{5, -INFINITY}, {7, 1.0}};
  greedy.temperature = 0;
  for (const SamplingOptions& sampling : {drawn, filtered, greedy}) {
    const int steps = 30, all = 70;
    const auto together = generate(0, all, steps, sampling);
    for (const auto& [first, count] : std::vector<std::pair<int, int>>{{0, 1}, {41, 1}, {3, 5}, {20, 17}, {9, 40}}) {
      const auto few = generate(first, count, steps, sampling);
      for (int i = 0; i < count; ++i) {
        for (int step = 0; step < steps; ++step) {
          const DecodedRow& a = few[static_cast<std::size_t>(i)][static_cast<std::size_t>(step)];
          const DecodedRow& b = together[static_cast<std::size_t>(first + i)][static_cast<std::size_t>(step)];
          ASSERT_EQ(a.token, b.token) << "sequence " << first + i << " of " << count << ", token " << step;
          ASSERT_EQ(a.logprob, b.logprob);
          EXPECT_NE(sampling.logit_bias.empty() ? 5 : a.token, sampling.logit_bias.empty() ? 6 : 5);
        }
      }
    }
  }
}

// Steps that only Model::decode supports use the same cache, and continue from the tokens sampled before.
TEST_P(CudaDecoder, TakesTurnsWithTheModel) {
  DecoderOptions options;
  options.slots = 80;
  const std::unique_ptr<Decoder> plain = make_model_decoder(*model_, options);
  SamplingOptions greedy;
  greedy.temperature = 0;
  greedy.repetition_penalty = 1.5;
  const SlotSequence sequence{greedy, {token(4, 0)}, nullptr, {}, {}};
  decoder_->open(2, sequence);
  plain->open(2, sequence);
  TokenId drawn = 0, next = token(4, 0);
  for (int step = 0; step < 12; ++step) {
    DecodeBatch batch;
    batch.add(step > 0 ? last_drawn : next, 2, step);
    WantedRow want;
    want.number = step;
    want.logprobs = step % 3 == 1 ? 40 : 0;  // 40: more than a kernel returns
    batch.wanted.push_back(want);
    decoder_->submit(batch);
    const DecodedRow found = decoder_->collect().wanted[0];
    // The model without the decoder reads the same tokens.
    batch.tokens[0] = step > 0 ? drawn : next;
    batch.wanted[0].kind = WantedRow::Kind::score;
    batch.wanted[0].target = found.token;
    plain->submit(batch);
    EXPECT_NEAR(found.logprob, plain->collect().wanted[0].logprob, 0.06) << step;
    EXPECT_EQ(found.top.size(), step % 3 == 1 ? 40u : 0u);
    drawn = found.token;
  }
}

const std::vector<std::string> names = {"Dense", "Convolution", "Modulated", "TokenShift", "ModulatedConvolution"};

INSTANTIATE_TEST_SUITE_P(Forms, CudaDecoder,
                         testing::Values(dense, with_convolution, modulated, with_token_shift,
                                         modulated_with_convolution),
                         [](const auto& tested) { return names[tested.index]; });

}  // namespace
}  // namespace some
