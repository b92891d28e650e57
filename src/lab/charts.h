// Charts of a report, as data for the page's script (web/src/charts.js).
#pragma once

#include <vector>

#include "lab/groups.h"
#include "plot/document.h"

namespace some {

// Training and validation loss over the steps of a run, together with other seeds and the published values.
Chart loss_chart(const RunGroup& group);
// Gini (or entropy) of every layer over the steps, together with the published value of the middle layer.
Chart layer_chart(const RunGroup& group, bool entropy);
// Validation loss of several experiments over the epochs.
Chart comparison_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups);
// Overlaid loss curves of single runs by step; runs without points are omitted.
Chart overlaid_validation(const std::vector<const RunHistory*>& runs, bool per_byte);
Chart overlaid_training(const std::vector<const RunHistory*>& runs);
// Final loss over non-padding tokens of several experiments, one dot per run.
Chart dots_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups);

}  // namespace some
