// Distributions over the next token for several parts of a text side by side: from a model with a key/value cache, and
// from its mixture with a memory that learns every token after it was coded. The encoder and the decoder make the same
// calls with the same shapes, so they get the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compress/text_mixer.h"
#include "compress/token_tree.h"
#include "memory/context_mixture.h"
#include "memory/contexts.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace some {

class ModelPredictor {
 public:
  ModelPredictor(Model& model, const Tokenizer& tokenizer, const TokenTree& tree, int parts);

  static constexpr int distributions = 2;  // the model; its mixture with the memory
  // Predicts the next token of each of these parts, in rising order: result[i] has the distributions of parts[i].
  void predict(std::span<const int> parts, std::vector<std::vector<WeightSums>>& result);
  // The token that followed in a part. Call for each part that was predicted, before the next prediction.
  void append(int part, int place);

  // The logits of the last prediction.
  std::span<const double> logits() const { return logits_; }
  // State that changes while a text is read, on the CPU only: fields of fixed sizes, and the memory.
  std::vector<StateField> state();
  std::string memory() const;
  void restore_memory(const std::string& bytes, const std::string& where);

 private:
  Model& model_;
  const TokenTree& tree_;
  std::int64_t capacity_;
  Model::Cache cache_;
  std::vector<std::int32_t> windows_;  // [parts, capacity]: the tokens in the cache, and last the one to be read next
  std::vector<std::int64_t> lengths_;  // [parts]
  std::vector<double> logits_;
  // The memory: contexts, and the mixture of all sources.
  struct Position {
    std::vector<std::int32_t> before;
    ContextMatch match;
    MixtureContext mixture;
    std::vector<double> probabilities;  // [sources, vocabulary]
  };
  void mix(int part, const WeightSums& model, WeightSums& mixed);
  std::int64_t vocabulary_;
  ContextStore contexts_;
  ContextMixture mixture_;
  std::vector<Position> positions_;  // of each part
};

// Describes everything that determines the bits of a prediction apart from the model: the version of the CPU code, the
// GEMM library with its version, the device.
std::string describe_arithmetic(const Context& ctx);
// Hash of predictions for fixed tokens, in the shapes of `parts` parts: differs wherever the arithmetic differs in a
// way that the description does not show (another mathematical library, another compiler).
std::uint64_t probe_arithmetic(Model& model, const Tokenizer& tokenizer, const TokenTree& tree, int parts);

}  // namespace some
