// Mixes the predictions of a model, its slots and its contexts (spec 8). The weights of these sources are learned after
// every token, without gradients. Computed in double precision with one fixed order of operations, so results are
// bit-identical on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/contexts.h"

namespace some {

// Inputs that select the weights, apart from the losses of the sources so far; known before the target.
struct MixtureContext {
  int longest = -1;        // ContextMatch::longest
  std::int64_t seen = 0;   // ContextMatch::seen
  bool certain = false;    // ContextMatch::certain
  std::int32_t last = -1;  // the token before the target; -1: none
};

// Mixes sources: the model, the slots read with each inverse temperature, the contexts of each order, and the only
// follower of the longest context, in this order. There are several sets of weights; one weight vector of each set is
// selected by one property of the position: none, the longest context seen before and its count, the source that
// predicted the last target best, or the last token. Each vector follows its own targets (online EM), and the sets are
// mixed by Bayes' rule.
//
// Where a text repeats an earlier one, the follower is right token after token, however often the weights learned
// before that the model is. A hidden Markov model with two states recognizes that: in the second one the text is
// copied, and the follower has the probability with which it was right in positions like this one.
class ContextMixture {
 public:
  ContextMixture() = default;
  // states: inverse temperatures of the slots (0: no slots); orders: number of context orders. share:
  // MemorySettings::switch_rate, how fast weights forget. followers: false leaves out the last source.
  ContextMixture(int states, int orders, int vocabulary, double share, bool followers = true);

  int sources() const { return 1 + states_ + orders_ + (followers_ ? 1 : 0); }
  // The weight of each source in the prediction of this position, copying included: not negative, sum 1. The prediction
  // of every token is the sum of weight * probability over the sources, in their order.
  void weights(const MixtureContext& context, std::span<double> out) const;
  // The weights that do not depend on the position.
  std::vector<double> general() const { return {sets_[0].weights.begin(), sets_[0].weights.begin() + sources()}; }
  // Learns from the target, given each source's probability of it [sources]. Returns the mixture's probability before
  // learning.
  double learn(const MixtureContext& context, std::span<const double> probabilities);

  // Exports and restores the whole state as plain numbers, for files. restore() throws bad_input, naming `where`, if
  // they do not fit. stored: number of sources of the state; one less than sources() is the state of a mixture without
  // followers, which then start with weight 0 and without copying.
  std::vector<double> state() const;
  void restore(std::span<const double> state, int stored, const std::string& where);

  static constexpr int sets = 4;

 private:
  struct Set {
    std::vector<std::int32_t> row_of;  // row of each value of the property; -1: not used yet
    std::vector<std::int32_t> values;  // one per row
    std::vector<double> targets;       // [rows]: number of targets a row has learned from
    std::vector<double> weights;       // [rows, sources]
  };
  // How often the follower was right in positions of one kind; old ones count half after a while.
  struct Accuracy {
    double right = 0, all = 0;
  };
  std::array<std::size_t, sets> values_of(const MixtureContext& context) const;
  void blend(const MixtureContext& context, std::span<double> out) const;  // the weights without copying
  // The probability of copying at this position, before its target is known.
  double copying() const;
  // The kind of a position with a follower, an index of accuracies_; -1: it has none.
  std::int64_t kind_of(const MixtureContext& context) const;
  // Returns the weights of a set for a value of its property; those of the first set until the value has a row.
  const double* row(std::size_t set, std::size_t value) const;
  std::size_t make_row(std::size_t set, std::size_t value);

  int states_ = 0, orders_ = 0, vocabulary_ = 0;
  bool followers_ = true;
  double share_ = 0;
  int best_ = 0;  // the source that gave the last target the highest probability; ties go to the first
  std::array<Set, sets> sets_;
  std::array<double, sets> set_weights_{};
  double copied_ = 0;     // probability that the last target was copied
  std::int64_t run_ = 0;  // targets in a row that were the follower
  std::vector<Accuracy> accuracies_;
};

// Returns the tokens of the context of target t of a text, the latest last; with a border token only those of its
// document, as the model reads it.
std::span<const std::int32_t> context_before(std::span<const std::int32_t> tokens, std::int64_t t, int longest,
                                             std::optional<std::int32_t> border = {});

// The last source: all probability on the only token that followed the longest context. Counts of a context that
// occurred once or twice say little about how sure that is, because it depends on the text: the mixture learns it. If
// several tokens followed, the source equals the highest order, whose estimate of the target is `highest`.
inline double follower_estimate(const ContextMatch& match, std::int32_t target, double highest) {
  if (!match.certain) return highest;
  return target == match.follower ? 1.0 : 0.0;
}

// Returns the inputs that select the weights at a position.
MixtureContext mixture_context(const ContextMatch& match, std::span<const std::int32_t> before);

// Predicts one target, lets the mixture learn from it, and returns the loss. model: the model's loss; states:
// probability of the target according to the slots at each inverse temperature.
double mix_position(const ContextStore& contexts, ContextMixture& mixture, std::span<const std::int32_t> before,
                    std::int32_t target, double model, std::span<const double> states);

}  // namespace some
