// Predictions of a model combined with its memory (spec 8), for callers that need whole distributions and not only the
// probability of a known target: generation and traces.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/memory.h"

namespace some {

// Contribution of one slot to the probability of a token.
struct SlotContribution {
  std::int32_t slot = 0, entry = 0;  // entry: index of the token among the tokens of the slot
  double weight = 0;                 // part of the probability; in MemoryShares a fraction of it
};

// Contribution of one context to the probability of a token: what its own counts add, apart from those of shorter
// contexts.
struct ContextContribution {
  int tokens = 0;                    // of the context
  double weight = 0;                 // part of the probability; in MemoryShares a fraction of it
  std::int32_t seen = 0;             // how often the token followed this context
  std::int64_t born = -1, hit = -1;  // packed places where it did so first and last
};

// The memory's sources of one token. All numbers are fractions of the token's probability; the rest, 1 − total(), is
// the model's.
struct MemoryShares {
  double probability = 0;                        // of the token, by model and memory together
  double slots = 0, contexts = 0;                // of all slots, of all contexts
  std::vector<SlotContribution> of_slots;        // the largest first
  std::vector<ContextContribution> of_contexts;  // the longest first
  double total() const { return slots + contexts; }
  // Keeps the sums at most 1. Only rounding can make them exceed it.
  void limit();
};

// Returns the contexts that contribute to the prediction of one token, the longest first; none for a memory without
// contexts. before: the tokens before it, the latest last.
std::vector<ContextContribution> context_contributions(const Memory& memory, const ContextMixture& mixture,
                                                       std::span<const std::int32_t> before, std::int32_t value);

class MemoryPredictions {
 public:
  // memory_weights: the result of mixture_weights() for each text of the batch, from the current mixture weights of
  // that text.
  MemoryPredictions(Context& ctx, const Memory& memory, std::vector<std::vector<double>> memory_weights);
  void set_weights(std::vector<std::vector<double>> memory_weights) { mixture_ = std::move(memory_weights); }
  // A memory with contexts: the mixture of each text of the batch instead.
  void set_mixtures(std::vector<ContextMixture> mixtures) { context_mixtures_ = std::move(mixtures); }

  // Replaces the model's logits [rows, V] by log probabilities of the mixture. states: [rows, d] compute; texts: index
  // of each row's text; before: for a memory with contexts, the tokens before each row's prediction, the latest last.
  void mix(const Tensor& states, std::span<const std::int32_t> texts, std::vector<double>& logits,
           std::span<const std::vector<std::int32_t>> before = {});
  // Returns, for each row, the slots that contribute most to the prediction of one token, largest weight first, at most
  // `most`. All slots of the token together are the memory's whole prediction of it.
  std::vector<std::vector<SlotContribution>> parts_of(const Tensor& states, std::span<const std::int32_t> texts,
                                                      std::int32_t value, std::size_t most,
                                                      std::span<const std::vector<std::int32_t>> before = {});
  // Returns the contexts that contribute to the prediction of one token, the longest first; none for a memory without
  // contexts.
  std::vector<ContextContribution> contexts_of(std::int32_t text, std::span<const std::int32_t> before,
                                               std::int32_t value) const;
  // Both for one row, as fractions of the token's probability in the mixture, with at most `most` slots.
  MemoryShares shares_of(const Tensor& state, std::int32_t text, const std::vector<std::int32_t>& before,
                         std::int32_t value, double probability, std::size_t most);

 private:
  // The weights of all sources for each row; empty for a memory without contexts.
  std::vector<std::vector<double>> sources(std::span<const std::int32_t> texts,
                                           std::span<const std::vector<std::int32_t>> before) const;
  std::vector<double> weights(const Tensor& states, std::span<const std::int32_t> texts,
                              std::span<const std::vector<double>> sources);  // [rows, reach]
  Context& ctx_;
  const Memory& memory_;
  std::vector<std::vector<double>> mixture_;
  std::vector<ContextMixture> context_mixtures_;
  std::vector<std::int32_t> values_;  // [K, M]
  std::vector<double> parts_;         // [K, M]: each token's fraction of its slot
  std::size_t slots_ = 0;
};

// Returns the mixture weights after reading a text with the memory, without learning; the memory's own weights if the
// text is too short.
std::vector<double> mixture_weights_after(Model& model, Memory& memory, std::span<const std::int32_t> tokens);

// The same for a memory with contexts.
ContextMixture context_mixture_after(Model& model, Memory& memory, std::span<const std::int32_t> tokens);

// The weights of a mixture while a text is read without learning; initially those of the memory.
struct MixtureState {
  explicit MixtureState(const Memory& memory) : shares(memory.store.shares.clone()), contexts(memory.mixture) {}
  Tensor shares;
  ContextMixture contexts;  // only of a memory with contexts
};

// Replaces losses of the model, nll [T], by losses of the mixture and updates the mixture weights. Rows are processed
// in order; positions with a negative target are skipped. The rows are those of the batch from `first` on. states:
// [T, d] compute.
void mix_losses(Context& ctx, const Memory& memory, const Batch& batch, std::int64_t first, const Tensor& states,
                const Tensor& targets, MixtureState& mixture, Tensor& nll);

}  // namespace some
