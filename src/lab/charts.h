// The drawings of a report, as data for the page's script (web/src/charts.js).
#pragma once

#include <vector>

#include "lab/groups.h"
#include "plot/document.h"

namespace some {

// Loss of training and validation over the steps of a run, other seeds and the published numbers beside it.
Chart loss_chart(const RunGroup& group);
// Gini (or entropy) of every layer over the steps, the published number of the middle layer beside it.
Chart layer_chart(const RunGroup& group, bool entropy);
// The validation loss of several experiments over the epochs.
Chart comparison_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups);
// Curves of single runs over one another, by their steps; a run without points is left out.
Chart overlaid_validation(const std::vector<const RunHistory*>& runs, bool per_byte);
Chart overlaid_training(const std::vector<const RunHistory*>& runs);
// The final loss over real tokens of several experiments, a dot a run.
Chart dots_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups);

}  // namespace some
