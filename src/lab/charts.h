// The drawings of a report, as data for the page's script (web/src/charts.js).
#pragma once

#include <vector>

#include "base/rooms.h"
#include "lab/document.h"
#include "lab/groups.h"

namespace some::lab {

// Loss of training and validation over the steps of a run, other seeds and the published numbers beside it.
Chart loss_chart(const RunGroup& group);
// Gini (or entropy) of every layer over the steps, the published number of the middle layer beside it.
Chart layer_chart(const RunGroup& group, bool entropy);
// How many experts of the middle layer are used how much, on a logarithmic scale.
Chart usage_histogram(const RunGroup& group, const std::vector<double>& usage);
// Usage of the experts of each layer, the most used first.
Chart usage_ranks(const RunGroup& group, const std::vector<std::vector<double>>& usage);
// How many saved positions a map of so many keys shows: it must not bloat the page.
std::size_t snapshots_of_a_map(int experts);
// Where the keys of the middle layer lie and where they came from, seen from the two directions in which they spread
// most.
Chart key_map(Threads& threads, const RunGroup& group, const std::vector<KeySnapshot>& snapshots);
// The validation loss of several experiments over the epochs.
Chart comparison_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups);
// The final loss over real tokens of several experiments, a dot a run.
Chart dots_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups);

}  // namespace some::lab
