#include "inference/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace some {
namespace {

// Returns the first `count` tokens by rank; the rest of `order` is in any order.
struct Ranking {
  std::span<const double> logits;
  std::vector<TokenId> order;
  std::size_t ranked = 0;

  bool better(TokenId a, TokenId b) const {
    const double left = logits[static_cast<std::size_t>(a)], right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  }
  void rank(std::size_t count) {
    count = std::min(count, order.size());
    if (count <= ranked) return;
    std::partial_sort(order.begin() + static_cast<std::ptrdiff_t>(ranked),
                      order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                      [this](TokenId a, TokenId b) { return better(a, b); });
    ranked = count;
  }
};

TokenId most_likely(std::span<const double> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Step 5: returns the index of the chosen weight.
std::size_t invert(std::span<const double> weights, double sum, double uniform) {
  double at = uniform * sum;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    at -= weights[i];
    if (at < 0) return i;
    if (weights[i] > 0) last = i;
  }
  return last;  // rounding
}

}  // namespace

void check(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || options.temperature > 100)
    bad_input(Code::option_invalid, "{} {}: must be a number from 0 (always the most likely token) to 100",
              "--temperature", options.temperature);
  if (!(options.top_p > 0 && options.top_p <= 1))
    bad_input(Code::option_invalid, "{} {}: must be above 0 and at most 1", "--top-p", options.top_p);
  if (options.top_k < 0)
    bad_input(Code::option_invalid, "{} {}: must be 0 (all tokens) or more", "--top-k", options.top_k);
  if (!(options.min_p >= 0 && options.min_p <= 1))
    bad_input(Code::option_invalid, "{} {}: must be from 0 (all tokens) to 1", "--min-p", options.min_p);
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 100))
    bad_input(Code::option_invalid, "{} {}: must be above 0 and at most 100 (1 = none)", "--repetition-penalty",
              options.repetition_penalty);
  for (const auto& [name, value] : {std::pair{"--presence-penalty", options.presence_penalty},
                                    std::pair{"--frequency-penalty", options.frequency_penalty}}) {
    if (!(std::abs(value) <= 100))
      bad_input(Code::option_invalid, "{} {}: must be from -100 to 100 (0 = none)", name, value);
  }
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || std::isnan(bias) || bias == INFINITY)
      bad_input(Code::option_invalid, "{} {}: {}: the token must not be negative, the bias must be a finite number",
                "logit_bias", token, bias);
  }
}

double sampling_uniform(const SamplingOptions& options, std::uint64_t number) {
  return random_stream(options.seed, fmt::format("generate.{}", options.stream)).uniform(number);
}

TokenCounts::TokenCounts(int vocab, std::span<const TokenId> prompt) : counts_(static_cast<std::size_t>(vocab)) {
  for (const TokenId token : prompt) counts_.at(static_cast<std::size_t>(token)) |= 1u;
}

void adjust_logits(std::span<double> logits, const SamplingOptions& options, const TokenCounts& counts) {
  for (const auto& [token, bias] : options.logit_bias) {
    if (static_cast<std::size_t>(token) < logits.size()) logits[static_cast<std::size_t>(token)] += bias;
  }
  if (!options.penalizes() || counts.empty()) return;
  const std::span<const std::uint32_t> packed = counts.packed();
  for (std::size_t v = 0; v < logits.size(); ++v) {
    if (packed[v] == 0) continue;
    double& logit = logits[v];
    if (options.repetition_penalty != 1)
      logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    const std::uint32_t generated = packed[v] >> 1;
    if (generated > 0) logit -= options.presence_penalty + generated * options.frequency_penalty;
  }
}

TokenId choose_token(std::span<const double> logits, const SamplingOptions& options, double uniform) {
  const TokenId first = most_likely(logits);
  if (options.temperature <= 0) return first;
  const double largest = logits[static_cast<std::size_t>(first)];
  const auto weight_of = [&](TokenId token) {
    return std::exp((logits[static_cast<std::size_t>(token)] - largest) / options.temperature);
  };
  const bool ranked = options.ranks(static_cast<int>(logits.size()));
  if (!ranked && options.min_p <= 0) {
    std::vector<double> weights(logits.size());
    double sum = 0;
    for (std::size_t v = 0; v < logits.size(); ++v)
      sum += weights[v] = std::exp((logits[v] - largest) / options.temperature);
    return static_cast<TokenId>(invert(weights, sum, uniform));
  }
  Ranking ranking{logits, std::vector<TokenId>(logits.size())};
  std::iota(ranking.order.begin(), ranking.order.end(), 0);
  std::vector<TokenId>& tokens = ranking.order;
  if (options.top_k > 0 && ranked && static_cast<std::size_t>(options.top_k) < tokens.size()) {
    ranking.rank(static_cast<std::size_t>(options.top_k));
    tokens.resize(ranking.ranked);
  }
  std::vector<double> weights;
  weights.reserve(tokens.size());
  double sum = 0;
  std::size_t kept = 0;
  for (const TokenId token : tokens) {
    const double weight = weight_of(token);
    if (weight < options.min_p) continue;
    tokens[kept++] = token;
    weights.push_back(weight);
    sum += weight;
  }
  tokens.resize(kept);
  ranking.ranked = std::min(ranking.ranked, kept);
  if (options.top_p < 1) {
    const double needed = options.top_p * sum;
    double held = 0;
    std::size_t n = 0;
    for (; n < tokens.size() && (n == 0 || held < needed); ++n) {
      if (n == ranking.ranked) ranking.rank(std::max<std::size_t>(32, 4 * n));
      weights[n] = weight_of(tokens[n]);
      held += weights[n];
    }
    tokens.resize(n);
    sum = held;
  }
  return tokens[invert(std::span(weights).first(tokens.size()), sum, uniform)];
}

Logprobs logprobs_of(std::span<const double> logits, TokenId chosen, int n) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  const double shift = largest + std::log(sum);
  Logprobs out;
  out.chosen = {chosen, logits[static_cast<std::size_t>(chosen)] - shift};
  if (n <= 0) return out;
  Ranking ranking{logits, std::vector<TokenId>(logits.size())};
  std::iota(ranking.order.begin(), ranking.order.end(), 0);
  ranking.rank(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < ranking.ranked; ++i)
    out.top.push_back({ranking.order[i], logits[static_cast<std::size_t>(ranking.order[i])] - shift});
  return out;
}

}  // namespace some
