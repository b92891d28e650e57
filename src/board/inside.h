// What goes on inside of one run's model: what its experts carry, where its keys lie, which experts go together.
#pragma once

#include <string>

#include "board/answers.h"

namespace some {

// One measure of every layer, over the steps: metric "train.gini", "eval.gate_entropy".
std::string layer_curves(const Watch& watch, const Request& request);
// What the experts of a layer carry at each moment: {steps, experts, rows: [a moment: [percent of a fair share, ...]]}.
std::string expert_load(const Watch& watch, const Request& request);
// The sets of experts that a layer's positions chose most often, at an evaluation.
std::string chosen_together(const Watch& watch, const Request& request);
// A map of a layer's keys at their saved steps, as charts take it; with t-SNE where it is asked for.
std::string map_of_keys(const Watch& watch, const Request& request);

}  // namespace some
