// What a model and its memory say together (spec 8), where whole distributions are wanted and not only the probability
// of a known target: generation and traces.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/memory.h"

namespace some {

// A slot's part in an answer.
struct SlotContribution {
  std::int32_t slot = 0, entry = 0;  // which of the tokens that the slot holds
  double weight = 0;                 // of the whole answer, model included
};

class MemoryPredictions {
 public:
  // say: for each text beside one another, what mixture_weights gives of the weights it has come to.
  MemoryPredictions(Context& ctx, const Memory& memory, std::vector<std::vector<double>> say);
  void set_say(std::vector<std::vector<double>> say) { mixture_ = std::move(say); }

  // logits [rows, V] of the model become the logarithms of the mixture. states: [rows, d] compute; texts: whose row
  // each is.
  void mix(const Tensor& states, std::span<const std::int32_t> texts, std::vector<double>& logits);
  // The slots of one value that have most say in each row, strongest first; all of them together are what the memory
  // says of the value.
  std::vector<std::vector<SlotContribution>> parts_of(const Tensor& states, std::span<const std::int32_t> texts,
                                                      std::int32_t value, std::size_t most);

 private:
  std::vector<double> weights(const Tensor& states, std::span<const std::int32_t> texts);  // [rows, reach]
  Context& ctx_;
  const Memory& memory_;
  std::vector<std::vector<double>> mixture_;
  std::vector<std::int32_t> values_;  // [K, M]
  std::vector<double> parts_;         // [K, M]: what part of its slot each token is
  std::size_t slots_ = 0;
};

// The weights of the mixture after a text was read with the memory, nothing being learnt; the memory's own where the
// text is too short.
std::vector<double> mixture_after(Model& model, Memory& memory, std::span<const std::int32_t> tokens);

// What the memory makes of losses that a model has computed: nll [T] is replaced, the weights learn in passing. Rows in
// their order; positions with a negative target are passed over. states: [T, d] compute.
void mix_losses(Context& ctx, const Memory& memory, const Tensor& states, const Tensor& targets, Tensor& shares,
                Tensor& nll);

}  // namespace some
