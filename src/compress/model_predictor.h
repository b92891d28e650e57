// Predicts the next token for several parts of a text in one batch: from a model with a KV cache, and from its mixture
// with a memory that learns each token after it was coded. Encoder and decoder make the same calls with the same
// shapes, so they compute bit-identical numbers.
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

  static constexpr int distributions = 2;  // of the model; of its mixture with the memory
  // Predicts the next token of each of these parts, in ascending order: result[i] has the distributions of parts[i].
  void predict(std::span<const int> parts, std::vector<std::vector<WeightSums>>& result);
  // Passes the token that followed in a part. Call once per predicted part, before the next prediction.
  void append(int part, int place);

  // Returns the logits of the last prediction.
  std::span<const double> logits() const { return logits_; }
  // State that changes while a text is read; CPU only. Fields have fixed sizes, except for the memory.
  std::vector<StateField> state();
  // True if every restored token and length is in its range.
  bool state_valid() const;
  std::string memory() const;
  void restore_memory(const std::string& bytes, const std::string& where);

 private:
  Model& model_;
  const TokenTree& tree_;
  std::int64_t capacity_;
  Model::Cache cache_;
  std::vector<std::int32_t> windows_;  // [parts, capacity]: the tokens in the cache, followed by the token to read next
  std::vector<std::int64_t> lengths_;  // [parts]
  std::vector<double> logits_;
  // The memory: contexts, and the mixture of all sources, without followers: the context mixer finds repeated passages
  // (text_mixer.h), so they would change the format and save nothing.
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
  std::vector<Position> positions_;  // one per part
};

// Describes everything besides the model that determines the bits of a prediction: version of the CPU code, GEMM
// library and its version, device.
std::string describe_arithmetic(const Context& ctx);
// Returns a hash of predictions for fixed tokens, with the shapes of `parts` parts. Detects differences in arithmetic
// that the description does not show (another math library or compiler).
std::uint64_t probe_arithmetic(Model& model, const Tokenizer& tokenizer, const TokenTree& tree, int parts);

}  // namespace some
