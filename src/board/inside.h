// Internals of one run's model: expert load, key positions, and experts active together.
#pragma once

#include <string>

#include "board/answers.h"

namespace some {

// Returns one measure of every layer over the steps: metric "train.gini", "eval.gate_entropy".
std::string layer_curves(const Watch& watch, const Request& request);
// Returns the load of a layer's experts over time: {steps, experts, rows: [one per step: [percent of the uniform load,
// ...]]}.
std::string expert_load(const Watch& watch, const Request& request);
// Returns the expert sets most frequently active together in a layer, at one evaluation.
std::string chosen_together(const Watch& watch, const Request& request);
// Returns a map of a layer's keys at their saved steps as chart data, with t-SNE on request.
std::string map_of_keys(const Watch& watch, const Request& request);

}  // namespace some
