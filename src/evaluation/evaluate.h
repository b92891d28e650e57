// Evaluates the loss over a data set, with measures of every layer (spec 5, 6).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.h"
#include "data/token_data.h"
#include "evaluation/layer_measures.h"
#include "memory/memory.h"
#include "model/model.h"
#include "recipe/recipe.h"

namespace some {

struct EvaluateOptions {
  int rows = 32;
  bool count_pads = false;
  int pad_id = 1, eos_id = 2;
  EvalAverage average = EvalAverage::tokens;
  std::int64_t max_documents = 0;  // 0: all
  // How documents longer than a sequence are read. With a sliding window every token is predicted once, with at least
  // half a sequence of context (except at the document's beginning).
  LongDocuments long_documents = LongDocuments::cut;
  double temperature = 0;  // 0: eval_temp
  // Mixed into every prediction. The store does not learn; the mixture weights follow the text.
  const Memory* memory = nullptr;
  bool alone = false;  // by this rank only, independent of other ranks
};

// Returns the options with which a recipe evaluates its validation text.
EvaluateOptions evaluate_options(const Recipe& recipe, const Tokenizer& tokenizer);

struct Evaluation {
  double loss = 0;  // nats per non-padding token
  double bits_per_byte = 0;
  std::optional<double> padded_loss;                  // over all predicted positions; only if padding was counted
  double batch_mean_loss = 0;                         // mean of batch means, over the positions used in training
  std::int64_t tokens = 0, bytes = 0, documents = 0;  // tokens: number of predicted tokens
  std::vector<ChoiceMeasures> layers;
  double perplexity() const;
  // Returns the loss used to compare runs: including padding if it was counted, averaged as set in the options.
  double headline(const EvaluateOptions& options) const;
};

// Thrown if a loss is not finite: the evaluated model is unusable.
class LossNotFinite : public Error {
 public:
  explicit LossNotFinite(double loss);
  double loss() const { return loss_; }

 private:
  double loss_;
};

// Returns loss and measures. Throws LossNotFinite if the loss is not finite. The ranks of the model's context share the
// batches; each rank receives the result, bit-identical to that of a single rank.
Evaluation evaluate(Model& model, const TokenData& data, const EvaluateOptions& options);

}  // namespace some
