// Predictions of a model combined with its memory (spec 8), for callers that need whole distributions and not only the
// probability of a known target: generation and traces.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/memory.h"

namespace some {

// Contribution of one slot to a prediction.
struct SlotContribution {
  std::int32_t slot = 0, entry = 0;  // entry: index of the token among the tokens of the slot
  double weight = 0;                 // fraction of the whole prediction, model included
};

class MemoryPredictions {
 public:
  // say: the result of mixture_weights() for each text of the batch, from the current mixture weights of that text.
  MemoryPredictions(Context& ctx, const Memory& memory, std::vector<std::vector<double>> say);
  void set_say(std::vector<std::vector<double>> say) { mixture_ = std::move(say); }

  // Replaces the model's logits [rows, V] by log probabilities of the mixture. states: [rows, d] compute; texts: index
  // of each row's text.
  void mix(const Tensor& states, std::span<const std::int32_t> texts, std::vector<double>& logits);
  // Returns, for each row, the slots that contribute most to the prediction of one token, largest weight first, at most
  // `most`. All slots of the token together are the memory's whole prediction of it.
  std::vector<std::vector<SlotContribution>> parts_of(const Tensor& states, std::span<const std::int32_t> texts,
                                                      std::int32_t value, std::size_t most);

 private:
  std::vector<double> weights(const Tensor& states, std::span<const std::int32_t> texts);  // [rows, reach]
  Context& ctx_;
  const Memory& memory_;
  std::vector<std::vector<double>> mixture_;
  std::vector<std::int32_t> values_;  // [K, M]
  std::vector<double> parts_;         // [K, M]: each token's fraction of its slot
  std::size_t slots_ = 0;
};

// Returns the mixture weights after reading a text with the memory, without learning; the memory's own weights if the
// text is too short.
std::vector<double> mixture_weights_after(Model& model, Memory& memory, std::span<const std::int32_t> tokens);

// Replaces losses of the model, nll [T], by losses of the mixture and updates the mixture weights. Rows are processed
// in order; positions with a negative target are skipped. states: [T, d] compute.
void mix_losses(Context& ctx, const Memory& memory, const Tensor& states, const Tensor& targets, Tensor& shares,
                Tensor& nll);

}  // namespace some
