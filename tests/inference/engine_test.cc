// The engine: every sequence has the same tokens whatever else is in the batch, for every form of the model.
#include "inference/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "core/random.h"
#include "expect_error.h"
#include "inference/synthetic_tokenizer.h"
#include "model/sample.h"

namespace some {
namespace {

struct Written {
  std::vector<TokenId> tokens;
  std::vector<double> logprobs;
  std::vector<PromptToken> prompt;
  std::string text, stop;
  FinishReason reason = FinishReason::failed;
  std::vector<float> embedding;
  std::vector<TokenRoutes> routes;
  int finished = 0;
};

// Adds a request that reports into `out`.
SequenceId add(Engine& engine, SequenceRequest request, Written& out) {
  request.on_token = [&out](const TokenEvent& event) {
    ASSERT_EQ(out.finished, 0);
    ASSERT_EQ(event.number, std::ssize(out.tokens));
    out.tokens.push_back(event.token);
    out.logprobs.push_back(event.logprob);
    out.text += event.text;
    out.routes.insert(out.routes.end(), event.routes.begin(), event.routes.end());
  };
  request.on_prompt = [&out](const std::vector<PromptToken>& tokens) { out.prompt = tokens; };
  request.on_finish = [&out](const FinishedSequence& end) {
    ++out.finished;
    out.reason = end.reason;
    out.embedding = end.embedding;
    out.stop = end.stop;
    out.text += end.rest;
    ASSERT_EQ(out.text, end.text);
    ASSERT_EQ(out.tokens, end.tokens);
    out.routes.insert(out.routes.end(), end.routes.begin(), end.routes.end());
  };
  return engine.add(std::move(request));
}

Written alone(Model& model, const SequenceRequest& request, EngineOptions options = {}) {
  options.max_sequences = 1;
  Engine engine(model, synthetic_tokenizer(model.config().vocab), options);
  Written out;
  add(engine, request, out);
  engine.run();
  return out;
}

class Numbers {
 public:
  explicit Numbers(const std::string& name) : stream_(random_stream(1, name)) {}
  int below(int n) { return static_cast<int>(stream_.below(next_++, static_cast<std::uint32_t>(n))); }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

SequenceRequest random_request(Numbers& numbers, int vocab) {
  SequenceRequest request;
  for (int i = 1 + numbers.below(numbers.below(3) == 0 ? 30 : 6); i > 0; --i)
    request.prompt.push_back(3 + numbers.below(vocab - 3));
  request.sampling.temperature = numbers.below(3) == 0 ? 0 : 0.9;
  request.sampling.top_k = numbers.below(2) == 0 ? 0 : 5;
  request.sampling.top_p = numbers.below(2) == 0 ? 1 : 0.8;
  request.sampling.min_p = numbers.below(2) == 0 ? 0 : 0.05;
  request.sampling.repetition_penalty = numbers.below(2) == 0 ? 1 : 1.2;
  request.sampling.frequency_penalty = numbers.below(2) == 0 ? 0 : 0.3;
  request.sampling.seed = static_cast<std::uint64_t>(numbers.below(1000));
  request.sampling.stream = static_cast<std::uint64_t>(numbers.below(5));
  request.max_tokens = 1 + numbers.below(25);
  request.stop_at_eos = numbers.below(2) == 0;
  request.logprobs = 0;
  if (numbers.below(4) == 0) request.prompt_logprobs = 2;
  return request;
}

// Computes steps at once but holds their results back, like a device that works ahead of the host.
class LateDecoder : public Decoder {
 public:
  explicit LateDecoder(std::unique_ptr<Decoder> inner) : inner_(std::move(inner)) {}
  void open(std::int32_t slot, const SlotSequence& sequence) override { inner_->open(slot, sequence); }
  void close(std::int32_t slot) override { inner_->close(slot); }
  void memory_changed(const Memory& memory) override { inner_->memory_changed(memory); }
  void submit(const DecodeBatch& batch) override {
    inner_->submit(batch);
    results_.push_back(inner_->collect());
  }
  DecodeResult collect() override {
    DecodeResult result = std::move(results_.front());
    results_.pop_front();
    return result;
  }
  int max_in_flight() const override { return 3; }
  std::int64_t slots() const override { return inner_->slots(); }
  std::int64_t capacity() const override { return inner_->capacity(); }
  std::size_t cache_bytes() const override { return inner_->cache_bytes(); }

 private:
  std::unique_ptr<Decoder> inner_;
  std::deque<DecodeResult> results_;
};

std::unique_ptr<Decoder> make_late(Model& model, const DecoderOptions& options) {
  return std::make_unique<LateDecoder>(make_model_decoder(model, options));
}

TEST(Engine, TokensDoNotDependOnTheBatch) {
  int cancelled = 0, slid = 0;
  for (const Variant& variant : model_variants) {
    SCOPED_TRACE(variant.name);
    ModelConfig config = small_config();
    variant.change(config);
    if (!config.causal) continue;
    config.seq_len = 12;
    config.vocab = 40;
    std::shared_ptr<Context> ctx = make_context("cpu", "fp32");
    Model model(ctx, config, false);
    Numbers numbers(variant.name);
    std::vector<SequenceRequest> requests;
    std::vector<Written> expected;
    for (int i = 0; i < 14; ++i) {
      requests.push_back(random_request(numbers, config.vocab));
      expected.push_back(alone(model, requests.back()));
      slid += std::ssize(requests.back().prompt) + std::ssize(expected.back().tokens) > 12;
    }
    for (const bool late : {false, true}) {
      EngineOptions options;
      options.max_sequences = 4;
      options.prompt_chunk = 7;
      if (late) options.make_decoder = make_late;
      Engine engine(model, synthetic_tokenizer(config.vocab), options);
      std::vector<Written> written(requests.size());
      std::map<std::size_t, SequenceId> ids;
      std::size_t next = 0;
      while (next < requests.size() || !engine.idle()) {
        while (next < requests.size() && numbers.below(2) == 0) {
          ids[next] = add(engine, requests[next], written[next]);
          ++next;
        }
        if (next > 0 && numbers.below(12) == 0)
          engine.cancel(ids.at(static_cast<std::size_t>(numbers.below(static_cast<int>(next)))));
        engine.step();
      }
      engine.run();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        ASSERT_EQ(written[i].finished, 1) << i;
        auto tokens = expected[i].tokens;
        auto logprobs = expected[i].logprobs;
        if (written[i].reason == FinishReason::cancelled) {
          ++cancelled;
          ASSERT_LE(written[i].tokens.size(), tokens.size());
          tokens.resize(written[i].tokens.size());
          logprobs.resize(written[i].tokens.size());
        } else {
          ASSERT_EQ(written[i].reason, expected[i].reason) << i;
        }
        ASSERT_EQ(written[i].tokens, tokens) << i;
        ASSERT_EQ(written[i].logprobs, logprobs) << i;  // bit-identical
        ASSERT_TRUE(written[i].prompt.empty() || written[i].prompt.size() == expected[i].prompt.size());
        for (std::size_t p = 0; p < written[i].prompt.size(); ++p)
          ASSERT_EQ(written[i].prompt[p].logprob, expected[i].prompt[p].logprob) << i << ", " << p;
      }
      const EngineStatistics statistics = engine.statistics();
      EXPECT_EQ(statistics.active, 0);
      EXPECT_EQ(statistics.waiting, 0);
      EXPECT_EQ(statistics.finished + statistics.cancelled, std::ssize(requests));
    }
  }
  EXPECT_GT(cancelled, 20);
  EXPECT_GT(slid, 20);
}

class EngineTest : public testing::Test {
 protected:
  EngineTest() : ctx_(make_context("cpu", "fp32")), model_(ctx_, config(), false) {}
  static ModelConfig config() {
    ModelConfig config = small_config();
    config.seq_len = 12;
    config.vocab = 40;
    return config;
  }
  static SequenceRequest request(std::vector<TokenId> prompt = {3, 9, 4}) {
    SequenceRequest out;
    out.prompt = std::move(prompt);
    out.stop_at_eos = false;
    out.max_tokens = 20;
    return out;
  }
  Engine engine(EngineOptions options = {}) { return Engine(model_, synthetic_tokenizer(40), options); }
  // Returns log probabilities of the token after each position, from a pass over the whole sequence.
  std::vector<std::vector<double>> whole(const std::vector<TokenId>& tokens) {
    ctx_->arena->reset();
    const std::vector<double> logits =
        read_vector(model_.logits(upload(*ctx_, rows_batch({tokens}, config().seq_len, false)), {}));
    std::vector<std::vector<double>> out;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      std::vector<double> row(logits.begin() + static_cast<std::ptrdiff_t>(t * 40),
                              logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * 40));
      double sum = 0;
      for (const double one : row) sum += std::exp(one);
      for (double& one : row) one -= std::log(sum);
      out.push_back(row);
    }
    return out;
  }

  std::shared_ptr<Context> ctx_;
  Model model_;
};

// Each token of the prompt is predicted in the sequence that evaluation would use.
TEST_F(EngineTest, PromptsAreScoredAsEvaluationDoes) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 31; ++i) prompt.push_back(3 + (i * 7) % 37);
  for (const int chunk : {0, 1, 5, 100}) {
    SequenceRequest one = request(prompt);
    one.max_tokens = 0;
    one.prompt_logprobs = 3;
    EngineOptions options;
    options.prompt_chunk = chunk;
    const Written written = alone(model_, one, options);
    EXPECT_EQ(written.reason, FinishReason::length);
    ASSERT_EQ(written.prompt.size(), prompt.size());
    for (std::size_t n = 1; n < prompt.size(); ++n) {
      const std::size_t begin = n < 12 ? 0 : ((n - 12) / 6 + 1) * 6;
      const auto expected =
          whole({prompt.begin() + static_cast<std::ptrdiff_t>(begin), prompt.begin() + static_cast<std::ptrdiff_t>(n)})
              .back();
      ASSERT_NEAR(written.prompt[n].logprob, expected[static_cast<std::size_t>(prompt[n])], 1e-5) << n;
      ASSERT_EQ(written.prompt[n].top.size(), 3u);
      ASSERT_NEAR(written.prompt[n].top[0].logprob, *std::max_element(expected.begin(), expected.end()), 1e-5) << n;
    }
  }
  SequenceRequest shortest = request({5});
  shortest.max_tokens = 0;
  shortest.prompt_logprobs = 0;
  EXPECT_EQ(alone(model_, shortest).prompt.size(), 1u);
}

TEST_F(EngineTest, EmbeddingsAreTheMeanOfTheLastStates) {
  const std::vector<TokenId> prompt = {3, 9, 4, 11, 5};
  SequenceRequest one = request(prompt);
  one.max_tokens = 0;
  one.embed = true;
  EngineOptions options;
  options.prompt_chunk = 2;
  const Written written = alone(model_, one, options);
  ctx_->arena->reset();
  Tensor states;
  ForwardObserver observer;
  observer.states = &states;
  model_.logits(upload(*ctx_, rows_batch({prompt}, 12, false)), {}, observer);
  const std::vector<double> values = read_vector(states);
  ASSERT_EQ(written.embedding.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    double mean = 0;
    for (std::size_t t = 0; t < prompt.size(); ++t) mean += values[t * 8 + i] / 5;
    EXPECT_NEAR(written.embedding[i], mean, 1e-5);
  }
}

TEST_F(EngineTest, ReportsTheExpertsOfEveryTokenOnce) {
  SequenceRequest one = request({3, 9, 4, 11, 5});
  one.routes = true;
  one.max_tokens = 6;
  EngineOptions options;
  options.prompt_chunk = 2;
  const Written written = alone(model_, one, options);
  std::vector<TokenId> all = one.prompt;
  all.insert(all.end(), written.tokens.begin(), written.tokens.end());
  all.pop_back();  // the last token is generated, but not read
  ASSERT_EQ(written.routes.size(), all.size());
  ctx_->arena->reset();
  std::vector<std::vector<double>> experts, gates;
  ForwardObserver observer;
  observer.layer = [&](int, const RouterTape& tape) {
    experts.push_back(read_vector(tape.routing.indices));
    gates.push_back(read_vector(tape.routing.gates));
  };
  model_.logits(upload(*ctx_, rows_batch({all}, 12, false)), {}, observer);
  for (std::size_t t = 0; t < all.size(); ++t) {
    const TokenRoutes& routes = written.routes[t];
    ASSERT_EQ(routes.index, static_cast<std::int64_t>(t));
    ASSERT_EQ(routes.token, all[t]);
    ASSERT_EQ(routes.top_k, 2);
    ASSERT_EQ(routes.experts.size(), 4u);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_EQ(routes.experts[layer * 2 + i], static_cast<std::int32_t>(experts[layer][t * 2 + i]));
        ASSERT_NEAR(routes.gates[layer * 2 + i], gates[layer][t * 2 + i], 1e-5);
      }
    }
  }
}

TEST_F(EngineTest, EndsForEveryReason) {
  const Written free = alone(model_, request());
  EXPECT_EQ(free.reason, FinishReason::length);
  ASSERT_EQ(free.tokens.size(), 20u);
  const auto word = [](TokenId token) { return "w" + std::to_string(token); };

  SequenceRequest stops = request();
  stops.stop = {word(free.tokens[4]).substr(1) + " " + word(free.tokens[5])};  // across two tokens
  const Written stopped = alone(model_, stops);
  EXPECT_EQ(stopped.reason, FinishReason::stop);
  EXPECT_EQ(stopped.stop, stops.stop[0]);
  EXPECT_EQ(stopped.tokens.size(), 6u);
  EXPECT_EQ(stopped.text, free.text.substr(0, free.text.find(stops.stop[0])));

  SequenceRequest token = request();
  token.stop_tokens = {free.tokens[3]};
  const Written at_token = alone(model_, token);
  EXPECT_EQ(at_token.reason, FinishReason::stop);
  EXPECT_LE(at_token.tokens.size(), 3u);

  SequenceRequest full = request();
  full.slide = false;
  const Written in_context = alone(model_, full);
  EXPECT_EQ(in_context.reason, FinishReason::context);
  EXPECT_EQ(in_context.tokens.size() + 3, 12u);

  SequenceRequest eos = request();
  eos.stop_at_eos = true;
  eos.sampling.logit_bias = {{2, 1e6}};
  const Written at_eos = alone(model_, eos);
  EXPECT_EQ(at_eos.reason, FinishReason::eos);
  EXPECT_TRUE(at_eos.tokens.empty());
}

TEST_F(EngineTest, NeverWritesBannedTokens) {
  SequenceRequest one = request();
  one.max_tokens = 60;
  for (TokenId token = 5; token < 40; ++token) one.sampling.logit_bias.emplace_back(token, -INFINITY);
  one.sampling.logit_bias.emplace_back(1, 1e6);  // padding
  for (const TokenId token : alone(model_, one).tokens) EXPECT_TRUE(token == 0 || token == 3 || token == 4) << token;
}

TEST_F(EngineTest, RefusesNonsense) {
  Engine own(model_, synthetic_tokenizer(40), {});
  const auto refused = [&](Code code, void (*change)(SequenceRequest&)) {
    SequenceRequest one = request();
    change(one);
    EXPECT_ERROR(own.add(std::move(one)), code);
  };
  refused(Code::prompt_empty, [](SequenceRequest& r) { r.prompt.clear(); });
  refused(Code::token_out_of_range, [](SequenceRequest& r) { r.prompt = {40}; });
  refused(Code::token_out_of_range, [](SequenceRequest& r) { r.prompt = {-1}; });
  refused(Code::option_invalid, [](SequenceRequest& r) { r.max_tokens = 0; });
  refused(Code::option_invalid, [](SequenceRequest& r) { r.max_tokens = -5; });
  refused(Code::option_invalid, [](SequenceRequest& r) { r.stop = {""}; });
  refused(Code::option_invalid, [](SequenceRequest& r) { r.sampling.top_p = 2; });
  refused(Code::option_conflict, [](SequenceRequest& r) { r.embed = true; });
  refused(Code::text_too_long, [](SequenceRequest& r) {
    r.prompt.assign(12, 3);
    r.slide = false;
  });
  EXPECT_FALSE(own.step());
  EngineOptions small;
  small.max_waiting = 2;
  Engine full(model_, synthetic_tokenizer(40), small);
  full.add(request());
  full.add(request());
  EXPECT_ERROR(full.add(request()), Code::server_busy);
  EXPECT_EQ(full.statistics().refused, 1);
  full.run();
  EXPECT_EQ(full.statistics().finished, 2);
  full.cancel(12345);  // unknown
  EXPECT_FALSE(full.step());
  EngineOptions tiny;
  tiny.cache_bytes = 10;
  EXPECT_ERROR(Engine(model_, synthetic_tokenizer(40), tiny), Code::memory_insufficient);
  tiny.cache_bytes = 2.5 * cache_bytes_per_slot(model_, 12);
  EXPECT_EQ(Engine(model_, synthetic_tokenizer(40), tiny).statistics().slots, 2);
}

TEST_F(EngineTest, HalfWeightsChangeLittleAndDoNotDependOnTheBatch) {
  SequenceRequest one = request({3, 9, 4, 11, 5, 6, 7});
  one.max_tokens = 0;
  one.prompt_logprobs = 0;
  EngineOptions half;
  half.decoder.half_weights = true;
  half.prompt_chunk = 3;
  const Written plain = alone(model_, one), rounded = alone(model_, one, half);
  half.prompt_chunk = 0;
  const Written whole_prompt = alone(model_, one, half);
  double most = 0;
  for (std::size_t i = 1; i < one.prompt.size(); ++i) {
    EXPECT_EQ(rounded.prompt[i].logprob, whole_prompt.prompt[i].logprob);
    EXPECT_NEAR(rounded.prompt[i].logprob, plain.prompt[i].logprob, 0.1);
    most = std::max(most, std::abs(rounded.prompt[i].logprob - plain.prompt[i].logprob));
  }
  EXPECT_GT(most, 0);
}

}  // namespace
}  // namespace some
