// Texts that a run writes at each evaluation, to show what the model can write so far (train.samples).
#pragma once

#include <vector>

#include "model/model.h"
#include "runs/samples_file.h"
#include "train/stage.h"

namespace some {

// Continues the prompt of the recipe, or the beginnings of validation documents, train.samples times. A pure function
// of the model, the recipe and the text: sample i draws with the seed of the run and stream i at every evaluation.
// Changes nothing that training reads. With several ranks all compute the same texts, since ranks may hold the experts
// together.
std::vector<TextSample> draw_samples(Model& model, const TrainingStage& stage);

}  // namespace some
