// The text a run, or a stage of one, is trained on, ready to be read, with the steps that it gives.
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
  std::string title;  // of the stage; empty where the run has none
  Recipe recipe;      // with the size of the vocabulary that the tokenizer has
  Tokenizer tokenizer;
  TokenData train, valid;
  BatchOptions batches;
  EvaluateOptions evaluation;
  RunData use = {};  // what of the two texts is read
  std::int64_t steps_per_epoch = 0, steps = 0;
  std::int64_t spare = 0;  // batches of an epoch that do not fill a step of several micro-batches: they are passed over

  // Steps are the course's own, counted from 0.
  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch; }
  double epochs_at(std::int64_t step) const { return static_cast<double>(step) / static_cast<double>(steps_per_epoch); }
  // The batch that a step begins with, counted over all epochs.
  std::int64_t first_batch(std::int64_t step) const { return step * recipe.train.accumulate + epoch_of(step) * spare; }
  // As many as these settings give.
  std::int64_t steps_for(const TrainConfig& train) const;
};

// What all courses read, added up; where there are several, each is listed too.
RunData use_of_texts(const std::vector<TrainingStage>& training_stages);

// A look at the recipe and its text that writes nothing: bad_input when training could not begin.
void check_recipe(const Host& host, const Recipe& recipe);
// Reads and tokenises the text. `tokenizer`: that of the run, where it has one already; empty: as the recipe says.
// One course a stage; one where the recipe has no stages. Of several ranks the first makes caches and tokenizer; the
// others wait, and read what is there for them.
std::vector<TrainingStage> prepare_stages(const Host& host, const Recipe& recipe, const std::string& tokenizer,
                                          const std::string& cache, const DataProgress& progress);

}  // namespace some
