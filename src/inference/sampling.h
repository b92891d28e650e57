// Sampling: how one token is chosen from the logits of a position. The choice is a pure function of the logits, the
// options, the tokens of the sequence so far and the number of the token in its sequence.
//
// Definition, in this order; l[v] is the logit of token v:
//  1. l[v] += logit_bias[v]. A bias of minus infinity bans the token.
//  2. Repetition penalty r, for tokens in the prompt or among the new tokens: l[v] /= r if l[v] > 0, otherwise l[v] *=
//  r.
//     Then, for tokens that occur c > 0 times among the new tokens: l[v] -= presence_penalty + c * frequency_penalty.
//  3. temperature = 0: the token with the largest l[v], the lowest id among equals. Otherwise the weight of a token is
//     w[v] = exp((l[v] - max l) / temperature).
//  4. Tokens are ranked by l[v] in decreasing order, equals by id. Every filter keeps a prefix of this ranking, which
//     holds at least the first token: min_p keeps w[v] >= min_p (the first token has w = 1), top_k keeps k tokens, and
//     top_p then keeps the shortest prefix whose weights reach top_p times the sum of the weights that are left.
//  5. Inverse of the cumulative distribution: with u = random_stream(seed, "generate.STREAM").uniform(number) and the
//     kept tokens in the order of their rank (in the order of their ids if neither top_k < vocabulary nor top_p < 1 is
//     set), the token is the first whose cumulative weight exceeds u times the sum of the kept weights.
//
// Guarantees. u depends only on seed, stream and number, never on other sequences, so a sequence has the same tokens
// alone and in any batch, provided its logits do. On the CPU they do, and the arithmetic of this file is double
// precision in the order above: the same bits always. A GPU computes steps 1 to 5 with its own precision and its own
// fixed order of additions, so that a row's token never depends on the other rows. Between devices, tokens can differ
// only where a cumulative weight or a filter's border is within rounding of u.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace some {

struct SamplingOptions {
  double temperature = 0.8;            // 0: always the most likely token
  int top_k = 0;                       // 0: all tokens
  double top_p = 1.0;                  // 1: all tokens
  double min_p = 0.0;                  // smallest probability, as a fraction of the largest; 0: all tokens
  double repetition_penalty = 1.0;     // 1: none
  double presence_penalty = 0.0;       // subtracted from the logit of each token that was generated before
  double frequency_penalty = 0.0;      // the same, times the number of occurrences
  std::uint64_t seed = 0, stream = 0;  // the random numbers of a sequence
  std::vector<std::pair<TokenId, double>> logit_bias = {};

  bool penalizes() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
  // True if step 5 processes the tokens by rank.
  bool ranks(int vocab) const { return (top_k > 0 && top_k < vocab) || top_p < 1; }
  bool operator==(const SamplingOptions&) const = default;
};

void check(const SamplingOptions& options);  // bad_input (Code::option_invalid) if an option is out of range

// Returns u of step 5.
double sampling_uniform(const SamplingOptions& options, std::uint64_t number);

// The tokens of a sequence, as required by the penalties.
class TokenCounts {
 public:
  TokenCounts() = default;
  TokenCounts(int vocab, std::span<const TokenId> prompt);
  void add(TokenId token) { counts_[static_cast<std::size_t>(token)] += 2; }  // a new token
  bool empty() const { return counts_.empty(); }
  bool seen(TokenId token) const { return counts_[static_cast<std::size_t>(token)] != 0; }
  std::uint32_t generated(TokenId token) const { return counts_[static_cast<std::size_t>(token)] >> 1; }
  // Per token: 2 * number of occurrences among the new tokens + (1 if it is in the prompt).
  std::span<const std::uint32_t> packed() const { return counts_; }

 private:
  std::vector<std::uint32_t> counts_;
};

// Applies steps 1 and 2 in place. `counts` may be empty if the options have no penalty.
void adjust_logits(std::span<double> logits, const SamplingOptions& options, const TokenCounts& counts);
// Applies steps 3 to 5 to adjusted logits.
TokenId choose_token(std::span<const double> logits, const SamplingOptions& options, double uniform);

struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};
// Returns the model's log probabilities: log softmax of the logits before step 1, over the whole vocabulary.
struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the n most likely tokens, most likely first; ties by id
};
Logprobs logprobs_of(std::span<const double> logits, TokenId chosen, int n);

}  // namespace some
