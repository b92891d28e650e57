// Text of a run or of one of its stages, ready to be read, with the resulting number of steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_data.h"
#include "evaluation/evaluate.h"
#include "recipe/recipe.h"
#include "runs/run.h"
#include "runtime/host.h"

namespace some {

struct TrainingStage {
  std::string title;  // of the stage; empty if the run has none
  Recipe recipe;      // with the tokenizer's vocabulary size
  Tokenizer tokenizer;
  TokenData train, valid;
  BatchOptions batches;
  EvaluateOptions evaluation;
  RunData use = {};  // how much of the two texts is used
  std::int64_t steps_per_epoch = 0, steps = 0;
  std::int64_t spare = 0;  // batches of an epoch that do not fill a step of several micro-batches; they are skipped

  // Steps are counted from 0 within the stage.
  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch; }
  double epochs_at(std::int64_t step) const { return static_cast<double>(step) / static_cast<double>(steps_per_epoch); }
  // Returns the first batch of a step, counted over all epochs.
  std::int64_t first_batch(std::int64_t step) const { return step * recipe.train.accumulate + epoch_of(step) * spare; }
  // Returns the number of steps under these settings.
  std::int64_t steps_for(const TrainConfig& train) const;
};

// Returns the sum over all stages; several stages are also listed separately.
RunData use_of_texts(const std::vector<TrainingStage>& training_stages);

// Checks the recipe and its text without writing anything: throws bad_input if training could not start.
void check_recipe(const Host& host, const Recipe& recipe);
// Reads and tokenizes the text. `tokenizer`: file of the run's existing tokenizer; empty: as set in the recipe. Returns
// one element per stage; a single one if the recipe has no stages. On several ranks the first creates caches and
// tokenizer; the others wait and then read them.
std::vector<TrainingStage> prepare_stages(const Host& host, const Recipe& recipe, const std::string& tokenizer,
                                          const std::string& cache, const DataProgress& progress);

}  // namespace some
