// Results as JSON, for metrics.jsonl and for `--json`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "evaluation/evaluate.h"
#include "evaluation/layer_measures.h"

namespace some {

nlohmann::json to_json(const Evaluation& evaluation, const EvaluateOptions& options);  // without the layers
nlohmann::json to_json(const DataUse& use);                                            // the amount of text used
nlohmann::json to_json(const UsageMeasures& measures);
nlohmann::json to_json(const LayerMeasures& layer);
nlohmann::json to_json(const std::vector<LayerMeasures>& layers);

}  // namespace some
