// Loss over a data set, with the measures of every layer (spec 5, 6).
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
  std::int64_t stories = 0;  // 0: all
  // Long documents that are split are read with a sliding context: every token is predicted once, with at least half
  // of a sequence before it (but at the document's beginning).
  LongDocuments long_documents = LongDocuments::cut;
  double temperature = 0;  // 0: eval_temp
  // Has its say in every prediction. It does not learn; its weight in the mixture follows the text.
  const Memory* memory = nullptr;
  bool alone = false;  // by this rank, whatever the others do
};

// How a recipe has its validation text evaluated.
EvaluateOptions evaluate_options(const Recipe& recipe, const Tokenizer& tokenizer);

struct Evaluation {
  double loss = 0;  // nats a real token
  double bits_per_byte = 0;
  std::optional<double> padded_loss;  // where pads were counted: over all predicted positions
  double batch_mean_loss = 0;         // mean of batch means of what was trained on (padded where pads count)
  std::int64_t tokens = 0, bytes = 0, stories = 0;  // tokens: those predicted
  std::vector<ChoiceMeasures> layers;
  double perplexity() const;
  // The loss a run is compared by: padded where pads were counted, averaged as asked for.
  double headline(const EvaluateOptions& options) const;
};

// A loss that is not a finite number: what was evaluated is of no use.
class LossNotFinite : public Error {
 public:
  explicit LossNotFinite(double loss);
  double loss() const { return loss_; }

 private:
  double loss_;
};

// Throws LossNotFinite instead of returning a loss that is not a number. The ranks of the model's context share the
// batches; every one of them has the result, which is that of one rank to the bit.
Evaluation evaluate(Model& model, const TokenData& data, const EvaluateOptions& options);

}  // namespace some
