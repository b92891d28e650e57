// The kernels of a decoding step on a GPU: compared with Model::decode, and bit-identical in every batch.
#include "inference/cuda_decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "inference/cuda/step_model.h"
#include "memory/reader.h"
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

// Forms without fused kernels.
ModelConfig published() {
  ModelConfig config = dense();
  config.ffn = Ffn::some;
  config.experts = 24;
  config.d_ffn = 96;
  config.top_k = 4;
  config.router = RouterKind::mlp;
  return config;
}

ModelConfig features() {
  ModelConfig config = published();
  config.router = RouterKind::linear;
  config.output_proj = OutputProj::features;
  config.input_proj = true;
  config.conv = 2;
  config.ground = 0.5;
  return config;
}

ModelConfig hash_routing_before_norm() {
  ModelConfig config = published();
  config.routing = RoutingKind::hash;
  config.norm = Norm::pre;
  config.output_proj = OutputProj::linear;
  config.input_proj = true;
  return config;
}

ModelConfig rotary() {
  ModelConfig config = dense();
  config.position = Position::rope;
  config.norm = Norm::pre;
  config.heads = 20;
  config.d_model = 640;
  return config;
}

ModelConfig hadamard() {
  ModelConfig config = with_token_shift();
  config.init = "hadamard";
  return config;
}

// Transforms of 512 numbers have fused kernels.
ModelConfig hadamard_512() {
  ModelConfig config = hadamard();
  config.d_model = 512;
  config.heads = 8;
  config.layers = 2;
  config.d_ffn = 600;  // two blocks, and not a multiple of 128
  return config;
}

ModelConfig hadamard_384() {
  ModelConfig config = hadamard_512();
  config.token_shift = 0;
  config.conv = 2;
  config.d_model = 384;
  config.heads = 6;
  return config;
}

ModelConfig with_partitions() {
  ModelConfig config = with_token_shift();
  config.experts = 24;
  config.key_partitions = 4;
  config.key_probe = 2;
  return config;
}

ModelConfig without_block() {
  ModelConfig config = dense();
  config.ffn = Ffn::none;
  return config;
}

class GpuDecoder : public testing::TestWithParam<ModelConfig (*)()> {
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
  }

  static DecoderOptions options() {
    DecoderOptions out;
    out.slots = 280;
    return out;
  }

  // Returns the same model on the CPU in fp32.
  std::unique_ptr<Model> exact_model() const {
    const std::shared_ptr<Context> ctx = make_context("cpu", "fp32");
    auto model = std::make_unique<Model>(ctx, model_->config(), false);
    for (const ParameterStore::Entry& entry : model_->parameters().entries())
      model->parameters().set(*ctx, entry.name,
                              model_->parameters().view(model_->parameters().value, entry).to(Device::cpu));
    model->parameters().refresh_compute(*ctx);
    return model;
  }

  static TokenId token(int sequence, int position) {
    return 3 + (sequence * 131 + position * position * 7 + position) % 490;
  }
  static int prompt_length(int sequence) { return 1 + sequence * 17 % 60; }

  // Root of the mean square error of log probabilities, compared with fp32: in steps of many rows, and of single rows.
  struct Errors {
    double squares[2] = {};
    std::int64_t numbers[2] = {};
    double distance = 0;  // sum of the squares of the differences to the first decoder
    double of(int group) const { return std::sqrt(squares[group] / static_cast<double>(numbers[group])); }
  };
  // Scores given tokens with each decoder, first several rows per slot, then one row per slot.
  std::vector<Errors> errors_of(const std::vector<Decoder*>& decoders) const {
    const std::unique_ptr<Model> exact_model = this->exact_model();
    const std::unique_ptr<Decoder> exact = make_model_decoder(*exact_model, options());
    std::vector<Errors> errors(decoders.size());
    for (const int count : {1, 3, 20, 70}) {
      for (int i = 0; i < count; ++i) {
        exact->open(i, {});
        for (Decoder* const one : decoders) one->open(i, {});
      }
      for (int step = 0; step < 8; ++step) {
        DecodeBatch batch;
        for (int i = 0; i < count; ++i) {
          const int length = prompt_length(i);
          for (int p = step == 0 ? 0 : length + step - 1; p < length + step; ++p) {
            batch.add(token(i, p), i, p);
            WantedRow want;
            want.row = static_cast<std::int32_t>(batch.rows()) - 1;
            want.kind = WantedRow::Kind::score;
            want.target = token(i, p + 1);
            want.logprobs = 3;
            batch.wanted.push_back(want);
          }
        }
        exact->submit(batch);
        const DecodeResult truth = exact->collect();
        DecodeResult of_first;
        for (std::size_t n = 0; n < decoders.size(); ++n) {
          decoders[n]->submit(batch);
          const DecodeResult found = decoders[n]->collect();
          if (n == 0) of_first = found;
          for (std::size_t i = 0; i < found.wanted.size(); ++i) {
            EXPECT_TRUE(found.wanted[i].finite);
            EXPECT_EQ(found.wanted[i].token, batch.wanted[i].target);
            EXPECT_EQ(found.wanted[i].top.size(), 3u);
            if (found.wanted[i].top.empty()) continue;
            const auto square = [](double a, double b) { return (a - b) * (a - b); };
            const int group = step == 0 ? 0 : 1;
            errors[n].squares[group] += square(found.wanted[i].logprob, truth.wanted[i].logprob) +
                                        square(found.wanted[i].top[0].logprob, truth.wanted[i].top[0].logprob);
            errors[n].numbers[group] += 2;
            errors[n].distance += square(found.wanted[i].logprob, of_first.wanted[i].logprob);
          }
        }
      }
    }
    return errors;
  }

  std::shared_ptr<Context> ctx_;
  std::unique_ptr<Model> model_;
};

class CudaDecoder : public GpuDecoder {
 protected:
  void SetUp() override {
    GpuDecoder::SetUp();
    if (IsSkipped()) return;
    decoder_ = make_cuda_decoder(*model_, options());
    if (!decoder_) GTEST_SKIP() << "needs a GPU of the Hopper generation";
  }

  // Returns tokens and log probabilities of `count` sequences of a set, generated together; steps are submitted ahead.
  std::vector<std::vector<DecodedRow>> generate(int first, int count, int steps, const SamplingOptions& sampling,
                                                int logprobs = 2) {
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
        want.logprobs = logprobs;
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

  void mixes_a_memory(int contexts);

  std::unique_ptr<Decoder> decoder_;
};

// Decoder and Model round to bf16 in different places, so both are compared with the model in fp32: the decoder's error
// is at most 1.25 times that of Model.
TEST_P(CudaDecoder, ComputesTheLogitsOfTheModel) {
  const std::unique_ptr<Decoder> plain = make_model_decoder(*model_, options());
  const std::vector<Errors> errors = errors_of({decoder_.get(), plain.get()});
  for (int group = 0; group < 2; ++group) {
    EXPECT_LE(errors[0].of(group), 1.25 * errors[1].of(group)) << (group == 0 ? "many rows" : "single rows");
  }
  // Without fused kernels, the operations are those of Model::decode itself; log probabilities are then rounded.
  if (decoding::has_fused_steps(*model_, options()))
    EXPECT_GT(errors[1].distance, 1e-6) << "the decoder is Model::decode";
  else
    EXPECT_LT(errors[1].distance, 1e-9);
}

// Model::decode computes products and attention with the decoder's kernels, in every form of the model.
TEST_P(GpuDecoder, ModelComputesTheLogitsOfFp32) {
  const std::unique_ptr<Decoder> plain = make_model_decoder(*model_, options());
  const Errors errors = errors_of({plain.get()})[0];
  for (int group = 0; group < 2; ++group) {
    EXPECT_LT(errors.of(group), 0.05);  // logits of about 1, activations rounded to 8 bits
    EXPECT_GT(errors.of(group), 0);
  }
}

// The experts of every row and the states, in steps of many rows and of single ones.
TEST_P(CudaDecoder, ReportsExpertsAndStates) {
  const std::unique_ptr<Decoder> plain = make_model_decoder(*model_, options());
  const bool routed = model_->config().ffn == Ffn::some;
  std::size_t same = 0, all = 0;
  for (const int count : {1, 5, 40}) {
    SamplingOptions greedy;
    greedy.temperature = 0;
    for (int i = 0; i < count; ++i) {
      for (Decoder* const one : {decoder_.get(), plain.get()}) one->open(i, {greedy, {}, nullptr, {}, {}});
    }
    for (int step = 0; step < 6; ++step) {
      DecodeBatch batch;
      batch.routes = true;
      for (int i = 0; i < count; ++i) {
        const int length = prompt_length(i);
        for (int p = step == 0 ? 0 : length + step - 1; p < length + step; ++p) batch.add(token(i, p), i, p);
        WantedRow want;
        want.row = static_cast<std::int32_t>(batch.rows()) - 1;
        want.kind = step < 2 ? WantedRow::Kind::state : WantedRow::Kind::draw;
        want.number = step;
        batch.wanted.push_back(want);
      }
      decoder_->submit(batch);
      plain->submit(batch);
      const DecodeResult found = decoder_->collect(), expected = plain->collect();
      ASSERT_EQ(found.experts.size(), expected.experts.size());
      ASSERT_EQ(found.gates.size(), expected.gates.size());
      EXPECT_EQ(found.top_k, routed ? model_->config().top_k : 0);
      for (std::size_t i = 0; i < found.experts.size(); ++i) {
        ++all;
        if (found.experts[i] != expected.experts[i]) continue;
        ++same;
        EXPECT_NEAR(found.gates[i], expected.gates[i], 0.1);
      }
      for (std::size_t i = 0; i < batch.wanted.size() && step < 2; ++i) {
        const std::vector<float>&own = found.wanted[i].state, &other = expected.wanted[i].state;
        ASSERT_EQ(own.size(), static_cast<std::size_t>(model_->config().d_model));
        ASSERT_EQ(other.size(), own.size());
        double squares = 0, distance = 0;
        for (std::size_t c = 0; c < own.size(); ++c) {
          squares += static_cast<double>(other[c]) * static_cast<double>(other[c]);
          distance += std::pow(static_cast<double>(own[c]) - static_cast<double>(other[c]), 2);
        }
        EXPECT_LT(distance, 0.01 * squares);
      }
    }
  }
  EXPECT_EQ(all > 0, routed);
  // A rounding can exchange experts whose scores are nearly equal.
  EXPECT_GE(static_cast<double>(same), 0.95 * static_cast<double>(all));
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
    const int steps = 30, all = sampling.temperature > 0 ? 70 : 260;
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

// Draws of recorded steps equal those of the host from the same logits and random numbers, up to the rounding of sums.
TEST_P(CudaDecoder, DrawsTheTokensOfTheHost) {
  SamplingOptions best, nucleus;
  best.top_k = 5;
  nucleus.top_k = 8;
  nucleus.top_p = 0.7;
  nucleus.temperature = 0.6;
  int same = 0, drawn = 0;
  for (const SamplingOptions& sampling : {best, nucleus}) {
    const int count = 40, steps = 40;
    const std::vector<std::vector<DecodedRow>> found = generate(0, count, steps, sampling, sampling.top_k);
    for (int i = 0; i < count; ++i) {
      SamplingOptions own = sampling;
      own.stream = static_cast<std::uint64_t>(i);
      for (int step = 0; step < steps; ++step) {
        const DecodedRow& row = found[static_cast<std::size_t>(i)][static_cast<std::size_t>(step)];
        ASSERT_EQ(row.top.size(), static_cast<std::size_t>(sampling.top_k));
        std::vector<double> logits(static_cast<std::size_t>(model_->config().vocab), -INFINITY);
        for (const TokenLogprob& one : row.top) logits[static_cast<std::size_t>(one.token)] = one.logprob;
        same += row.token == choose_token(logits, own, sampling_uniform(own, static_cast<std::uint64_t>(step)));
        ++drawn;
      }
    }
  }
  EXPECT_GE(same, 0.998 * drawn);
}

// Without fused kernels, logits are those of Model::decode, so that the host draws the same tokens without a filter.
TEST_P(CudaDecoder, DrawsFromAllTokens) {
  if (decoding::has_fused_steps(*model_, options())) GTEST_SKIP() << "fused kernels round logits differently";
  const std::unique_ptr<Decoder> plain = make_model_decoder(*model_, options());
  const int count = 20, steps = 40;
  const std::vector<std::vector<DecodedRow>> found = generate(0, count, steps, {});
  int same = 0;
  for (int i = 0; i < count; ++i) {
    SlotSequence sequence;
    sequence.sampling.stream = static_cast<std::uint64_t>(i);
    plain->open(i, sequence);
  }
  for (int step = 0; step < steps; ++step) {
    DecodeBatch batch;
    for (int i = 0; i < count; ++i) {
      const int length = prompt_length(i);
      const std::vector<DecodedRow>& own = found[static_cast<std::size_t>(i)];
      for (int p = step == 0 ? 0 : length + step - 1; p < length + step; ++p)
        batch.add(p < length ? token(i, p) : own[static_cast<std::size_t>(p - length)].token, i, p);
      WantedRow want;
      want.row = static_cast<std::int32_t>(batch.rows()) - 1;
      want.number = step;
      batch.wanted.push_back(want);
    }
    plain->submit(batch);
    const DecodeResult expected = plain->collect();
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      same += found[i][static_cast<std::size_t>(step)].token == expected.wanted[i].token;
  }
  EXPECT_GE(same, 0.998 * count * steps);
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

// A memory is mixed into the predictions on the device: the same probabilities and slots as on the host, and the same
// tokens in every batch, also next to sequences without it.
void CudaDecoder::mixes_a_memory(int contexts) {
  std::vector<std::int32_t> text;
  for (int i = 0; i < 600; ++i) text.push_back(token(i / 40 % 5, i % 40));
  MemorySettings settings;
  settings.slots = 1200;
  settings.window = 40;
  settings.beta = {5, 40};
  settings.contexts = contexts;
  Memory memory = make_memory(*ctx_, settings, model_->config(), mean_state(*model_, text, 200));
  learn_text(*model_, memory, "text", text, std::ssize(text), {});
  const std::vector<double> weights{0.3, 0.4};
  const auto sequence = [&](int i, bool remembers) {
    SlotSequence out;
    out.sampling.stream = static_cast<std::uint64_t>(i);
    if (remembers) {
      out.memory = &memory;
      if (contexts > 0)
        out.contexts = memory.mixture;
      else
        out.mixture = weights;
    }
    return out;
  };
  const std::unique_ptr<Decoder> plain = make_model_decoder(*model_, options());
  const auto want_of = [&](int step) {
    WantedRow want;
    want.number = step;
    want.logprobs = 2;
    want.sources = 3;
    return want;
  };
  const int steps = 12;
  const auto generate_with_memory = [&](int first, int count) {
    std::vector<std::vector<DecodedRow>> out(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) decoder_->open(i, sequence(first + i, (first + i) % 3 != 0));
    for (int step = 0; step < steps; ++step) {
      DecodeBatch batch;
      for (int i = 0; i < count; ++i) {
        const int length = 1 + (first + i) % 7;
        if (step == 0) {
          for (int p = 0; p < length; ++p) batch.add(token(first + i, p), i, p);
        } else {
          batch.add(last_drawn, i, length + step - 1);
        }
        batch.wanted.push_back(want_of(step));
        batch.wanted.back().row = static_cast<std::int32_t>(batch.rows()) - 1;
      }
      decoder_->submit(batch);
      const DecodeResult result = decoder_->collect();
      for (int i = 0; i < count; ++i)
        out[static_cast<std::size_t>(i)].push_back(result.wanted[static_cast<std::size_t>(i)]);
    }
    return out;
  };
  const auto together = generate_with_memory(0, 70);
  for (const auto& [first, count] : std::vector<std::pair<int, int>>{{1, 1}, {41, 1}, {3, 5}, {20, 17}}) {
    const auto few = generate_with_memory(first, count);
    for (int i = 0; i < count; ++i) {
      for (int step = 0; step < steps; ++step) {
        const DecodedRow& a = few[static_cast<std::size_t>(i)][static_cast<std::size_t>(step)];
        const DecodedRow& b = together[static_cast<std::size_t>(first + i)][static_cast<std::size_t>(step)];
        ASSERT_EQ(a.token, b.token) << "sequence " << first + i << " of " << count << ", token " << step;
        ASSERT_EQ(a.logprob, b.logprob);
        ASSERT_EQ(a.memory.probability, b.memory.probability);
        ASSERT_EQ(a.memory.slots, b.memory.slots);
        ASSERT_EQ(a.memory.contexts, b.memory.contexts);
      }
    }
  }
  // On the host, by scoring the tokens that were drawn. Fused kernels round states differently.
  const bool exact = !decoding::has_fused_steps(*model_, options());
  double shares = 0;
  for (const int i : {1, 2, 3, 40}) {
    plain->open(0, sequence(i, i % 3 != 0));
    const std::vector<DecodedRow>& drawn = together[static_cast<std::size_t>(i)];
    for (int step = 0; step < steps; ++step) {
      DecodeBatch batch;
      const int length = 1 + i % 7;
      for (int p = step == 0 ? 0 : length + step - 1; p < length + step; ++p)
        batch.add(p < length ? token(i, p) : drawn[static_cast<std::size_t>(p - length)].token, 0, p);
      WantedRow want = want_of(step);
      want.row = static_cast<std::int32_t>(batch.rows()) - 1;
      want.kind = WantedRow::Kind::score;
      const DecodedRow& found = drawn[static_cast<std::size_t>(step)];
      want.target = found.token;
      batch.wanted.push_back(want);
      plain->submit(batch);
      const DecodedRow expected = plain->collect().wanted[0];
      EXPECT_NEAR(found.logprob, expected.logprob, exact ? 1e-4 : 0.2);
      EXPECT_NEAR(found.memory.slots, expected.memory.slots, exact ? 1e-4 : 0.2);
      EXPECT_NEAR(found.memory.contexts, expected.memory.contexts, exact ? 1e-4 : 0.2);
      shares += found.memory.total();
      if (!exact) continue;
      EXPECT_NEAR(found.memory.probability, expected.memory.probability, 1e-5);
      ASSERT_EQ(found.memory.of_slots.size(), expected.memory.of_slots.size());
      for (std::size_t n = 0; n < found.memory.of_slots.size(); ++n)
        EXPECT_NEAR(found.memory.of_slots[n].weight, expected.memory.of_slots[n].weight, 1e-4);
      ASSERT_EQ(found.memory.of_contexts.size(), expected.memory.of_contexts.size());
      for (std::size_t n = 0; n < found.memory.of_contexts.size(); ++n) {
        EXPECT_EQ(found.memory.of_contexts[n].tokens, expected.memory.of_contexts[n].tokens);
        EXPECT_NEAR(found.memory.of_contexts[n].weight, expected.memory.of_contexts[n].weight, 1e-4);
      }
    }
  }
  EXPECT_GT(shares, 1);
}

TEST_P(CudaDecoder, MixesAMemory) { mixes_a_memory(0); }
TEST_P(CudaDecoder, MixesAMemoryWithContexts) { mixes_a_memory(4); }

const std::vector<std::string> names = {
    "Dense",   "Convolution", "Modulated", "TokenShift",   "ModulatedConvolution", "Published",   "Features",
    "HashPre", "Rotary",      "Hadamard",  "WithoutBlock", "Partitions",           "Hadamard512", "Hadamard384"};

const auto forms = testing::Values(dense, with_convolution, modulated, with_token_shift, modulated_with_convolution,
                                   published, features, hash_routing_before_norm, rotary, hadamard, without_block,
                                   with_partitions, hadamard_512, hadamard_384);
INSTANTIATE_TEST_SUITE_P(Forms, CudaDecoder, forms, [](const auto& tested) { return names[tested.index]; });
INSTANTIATE_TEST_SUITE_P(Forms, GpuDecoder, forms, [](const auto& tested) { return names[tested.index]; });

}  // namespace
}  // namespace some
