// Results as JSON, for metrics.jsonl and for `--json`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/rooms.h"
#include "train/evaluate.h"
#include "train/measures.h"

namespace some::train {

nlohmann::json to_json(const Evaluation& evaluation, const EvaluateOptions& options);  // without the layers
nlohmann::json to_json(const DataUse& use);                                            // what was taken of a text
nlohmann::json to_json(const UsageMeasures& measures);
nlohmann::json to_json(const LayerMeasures& layer);
nlohmann::json to_json(const std::vector<LayerMeasures>& layers);

}  // namespace some::train
