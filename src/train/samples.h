// Generates texts at each evaluation of a run, to show its progress (train.samples).
#pragma once

#include <vector>

#include "model/model.h"
#include "runs/samples_file.h"
#include "train/stage.h"

namespace some {

// Continues the prompt of the recipe, or the beginnings of validation documents, train.samples times. A pure function
// of the model, the recipe and the text: sample i uses the seed of the run and stream i at every evaluation. Does not
// affect training. With several ranks all compute the same texts, since ranks may share the experts.
std::vector<TextSample> draw_samples(Model& model, const TrainingStage& stage);

}  // namespace some
