// Compares sampling with a plain reference: the distribution for every option, and draws against its probabilities.
#include "inference/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/random.h"
#include "expect_error.h"

namespace some {
namespace {

// Random numbers for a property test: the n-th draw of a stream.
class Draws {
 public:
  explicit Draws(const std::string& name) : stream_(random_stream(1, name)) {}
  double uniform() { return stream_.uniform(next_++); }
  double normal() { return stream_.normal(next_++); }
  int below(int n) { return static_cast<int>(stream_.below(next_++, static_cast<std::uint32_t>(n))); }
  double pick(std::vector<double> values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

std::vector<double> random_logits(Draws& draws, int vocab) {
  std::vector<double> logits(static_cast<std::size_t>(vocab));
  const double scale = draws.pick({0.5, 2, 8});
  for (double& one : logits) one = std::round(scale * draws.normal() * 8) / 8;  // with ties
  return logits;
}

SamplingOptions random_options(Draws& draws) {
  SamplingOptions options;
  options.temperature = draws.pick({0.3, 0.8, 1, 2.5});
  options.top_k = static_cast<int>(draws.pick({0, 0, 1, 3, 10, 1000}));
  options.top_p = draws.pick({1, 1, 0.95, 0.5, 0.05});
  options.min_p = draws.pick({0, 0, 0.02, 0.3, 1});
  return options;
}

// Probability of each token by the definition: sort, filter, normalize.
std::vector<double> distribution(const std::vector<double>& logits, const SamplingOptions& options) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const auto weight = [&](int token) {
    return std::exp((logits[static_cast<std::size_t>(token)] - logits[static_cast<std::size_t>(order[0])]) /
                    options.temperature);
  };
  std::size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  while (kept > 1 && weight(order[kept - 1]) < options.min_p) --kept;
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) sum += weight(order[i]);
  if (options.top_p < 1) {
    double held = 0;
    std::size_t n = 0;
    while (n < kept && (n == 0 || held < options.top_p * sum)) held += weight(order[n++]);
    kept = n;
    sum = held;
  }
  std::vector<double> out(logits.size(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) out[static_cast<std::size_t>(order[i])] = weight(order[i]) / sum;
  return out;
}

TEST(Sampling, EveryTokenHasTheShareOfTheNumbersThatItsProbabilityIs) {
  Draws draws("shares");
  for (int round = 0; round < 300; ++round) {
    const std::vector<double> logits = random_logits(draws, 1 + draws.below(60));
    const SamplingOptions options = random_options(draws);
    const std::vector<double> expected = distribution(logits, options);
    std::vector<double> share(logits.size(), 0.0);
    constexpr int grid = 4000;
    for (int i = 0; i < grid; ++i)
      share[static_cast<std::size_t>(choose_token(logits, options, (i + 0.5) / grid))] += 1.0 / grid;
    for (std::size_t v = 0; v < logits.size(); ++v) {
      ASSERT_NEAR(share[v], expected[v], 1.5 / grid) << "round " << round << ", token " << v;
      if (expected[v] == 0) {
        ASSERT_EQ(share[v], 0);
      }
    }
  }
}

TEST(Sampling, FirstAndLastNumbersGiveKeptTokens) {
  Draws draws("ends");
  for (int round = 0; round < 300; ++round) {
    const std::vector<double> logits = random_logits(draws, 1 + draws.below(60));
    const SamplingOptions options = random_options(draws);
    const std::vector<double> expected = distribution(logits, options);
    for (const double u : {0.0, 0x1.fffffffffffffp-1})
      ASSERT_GT(expected[static_cast<std::size_t>(choose_token(logits, options, u))], 0);
  }
}

// Chi-square of 20,000 draws; with up to 20 degrees of freedom, 60 is exceeded with a probability below 1e-5.
TEST(Sampling, DrawsFollowTheProbabilities) {
  Draws draws("chi");
  for (int round = 0; round < 8; ++round) {
    const std::vector<double> logits = random_logits(draws, 20);
    SamplingOptions options = random_options(draws);
    options.seed = 7;
    options.stream = static_cast<std::uint64_t>(round);
    const std::vector<double> expected = distribution(logits, options);
    std::vector<int> counts(logits.size(), 0);
    constexpr int n = 20000;
    for (int i = 0; i < n; ++i)
      ++counts[static_cast<std::size_t>(
          choose_token(logits, options, sampling_uniform(options, static_cast<std::uint64_t>(i))))];
    double chi = 0, rare = 0, rare_count = 0;
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const double wanted = expected[v] * n;
      if (wanted < 10) {
        rare += wanted;
        rare_count += counts[v];
        continue;
      }
      chi += (counts[v] - wanted) * (counts[v] - wanted) / wanted;
    }
    if (rare >= 1) chi += (rare_count - rare) * (rare_count - rare) / rare;
    EXPECT_LT(chi, 60) << "round " << round;
  }
}

TEST(Sampling, GreedyIsTheLargestLogitAndTheLowestId) {
  SamplingOptions options;
  options.temperature = 0;
  EXPECT_EQ(choose_token(std::vector<double>{1, 3, 3, 2}, options, 0.9), 1);
  EXPECT_EQ(choose_token(std::vector<double>{-INFINITY, -5, -INFINITY}, options, 0.0), 1);
}

TEST(Sampling, NumbersDependOnSeedStreamAndNumberOnly) {
  SamplingOptions a, b;
  a.seed = b.seed = 5;
  a.stream = b.stream = 3;
  b.top_k = 7;
  EXPECT_EQ(sampling_uniform(a, 11), sampling_uniform(b, 11));
  // The numbers of all earlier versions, on which the output of `some generate --seed` depends.
  EXPECT_EQ(sampling_uniform(a, 11), random_stream(5, "generate.3").uniform(11));
  b.stream = 4;
  EXPECT_NE(sampling_uniform(a, 11), sampling_uniform(b, 11));
}

TEST(Sampling, PenaltiesMatchTheFormula) {
  Draws draws("penalties");
  for (int round = 0; round < 100; ++round) {
    const int vocab = 2 + draws.below(30);
    SamplingOptions options;
    options.repetition_penalty = draws.pick({1, 1.3, 0.7});
    options.presence_penalty = draws.pick({0, 0.6, -1});
    options.frequency_penalty = draws.pick({0, 0.25, -0.5});
    options.logit_bias = {{draws.below(vocab), 2.5}, {draws.below(vocab), -INFINITY}};
    std::vector<TokenId> prompt, written;
    for (int i = draws.below(12); i > 0; --i) prompt.push_back(draws.below(vocab));
    for (int i = draws.below(12); i > 0; --i) written.push_back(draws.below(vocab));
    const std::vector<double> before = random_logits(draws, vocab);
    TokenCounts counts(vocab, prompt);
    for (const TokenId token : written) counts.add(token);
    std::vector<double> after = before;
    adjust_logits(after, options, counts);
    for (int v = 0; v < vocab; ++v) {
      const auto times = static_cast<double>(std::count(written.begin(), written.end(), v));
      double wanted = before[static_cast<std::size_t>(v)];
      for (const auto& [token, bias] : options.logit_bias) wanted += token == v ? bias : 0;
      if (times > 0 || std::count(prompt.begin(), prompt.end(), v) > 0)
        wanted = wanted > 0 ? wanted / options.repetition_penalty : wanted * options.repetition_penalty;
      if (times > 0) wanted -= options.presence_penalty + times * options.frequency_penalty;
      ASSERT_EQ(after[static_cast<std::size_t>(v)], wanted) << v;
    }
  }
}

TEST(Sampling, LogProbabilitiesAreThoseOfTheModel) {
  const std::vector<double> logits = {1, 2, 2, -1};
  const double all = std::log(std::exp(1.0) + 2 * std::exp(2.0) + std::exp(-1.0));
  const Logprobs known = logprobs_of(logits, 3, 2);
  EXPECT_NEAR(known.chosen.logprob, -1 - all, 1e-12);
  ASSERT_EQ(known.top.size(), 2u);
  EXPECT_EQ(known.top[0].token, 1);
  EXPECT_EQ(known.top[1].token, 2);
  EXPECT_EQ(logprobs_of(logits, 0, 100).top.size(), 4u);
}

TEST(Sampling, RefusesNonsense) {
  const auto refused = [](void (*change)(SamplingOptions&), const char* name) {
    SamplingOptions options;
    change(options);
    EXPECT_ERROR(check(options), Code::option_invalid, name);
  };
  refused([](SamplingOptions& o) { o.temperature = -1; }, "--temperature");
  refused([](SamplingOptions& o) { o.temperature = NAN; }, "--temperature");
  refused([](SamplingOptions& o) { o.top_p = 0; }, "--top-p");
  refused([](SamplingOptions& o) { o.top_p = 1.1; }, "--top-p");
  refused([](SamplingOptions& o) { o.top_k = -1; }, "--top-k");
  refused([](SamplingOptions& o) { o.min_p = -0.1; }, "--min-p");
  refused([](SamplingOptions& o) { o.min_p = NAN; }, "--min-p");
  refused([](SamplingOptions& o) { o.repetition_penalty = 0; }, "--repetition-penalty");
  refused([](SamplingOptions& o) { o.repetition_penalty = INFINITY; }, "--repetition-penalty");
  refused([](SamplingOptions& o) { o.presence_penalty = 1e9; }, "--presence-penalty");
  refused([](SamplingOptions& o) { o.frequency_penalty = NAN; }, "--frequency-penalty");
  refused([](SamplingOptions& o) { o.logit_bias = {{-1, 0}}; }, "logit_bias");
  refused([](SamplingOptions& o) { o.logit_bias = {{1, INFINITY}}; }, "logit_bias");
  EXPECT_NO_THROW(check(SamplingOptions()));
}

}  // namespace
}  // namespace some
