#include "evaluation/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace some {

nlohmann::json to_json(const Evaluation& evaluation, const EvaluateOptions& options) {
  nlohmann::json out{{"loss", evaluation.loss},
                     {"perplexity", evaluation.perplexity()},
                     {"bits_per_byte", evaluation.bits_per_byte},
                     {"tokens", evaluation.tokens},
                     {"bytes", evaluation.bytes},
                     {"documents", evaluation.documents}};
  if (evaluation.padded_loss) {
    out["padded_loss"] = *evaluation.padded_loss;
    out["padded_perplexity"] = std::exp(*evaluation.padded_loss);
  }
  if (options.average == EvalAverage::batches) out["batch_mean_loss"] = evaluation.batch_mean_loss;
  return out;
}

nlohmann::json to_json(const DataUse& use) {
  return {{"documents", use.documents},
          {"tokens", use.tokens},
          {"used", use.used},
          {"cut", use.cut()},
          {"sequences", use.sequences}};
}

nlohmann::json to_json(const UsageMeasures& measures) {
  return {{"gini", measures.gini},
          {"entropy", measures.entropy},
          {"effective_experts", measures.effective_experts},
          {"max_over_mean_load", measures.max_over_mean_load},
          {"experts_used", measures.experts_used}};
}

nlohmann::json to_json(const LayerMeasures& layer) {
  nlohmann::json out{
      {"layer", layer.layer},
      {"count", to_json(layer.count)},
      {"mass", to_json(layer.mass)},
      {"experts_used_this_epoch", layer.experts_used_this_epoch},
      {"key_norm", {{"min", layer.key_norm.least}, {"mean", layer.key_norm.mean}, {"max", layer.key_norm.most}}},
      {"births", layer.births},
      {"deaths", layer.deaths}};
  if (layer.key_moved) out["key_moved"] = {{"mean", layer.key_moved->mean}, {"max", layer.key_moved->most}};
  if (!layer.validation) return out;
  const ChoiceMeasures& choices = layer.validation->choices;
  out["validation"] = to_json(layer.validation->count);
  out["validation_mass"] = to_json(layer.validation->mass);
  out["gate_entropy"] = choices.gate_entropy;
  out["sampled_positions"] = choices.sampled;
  out["distinct_sets"] = choices.distinct_sets;
  out["top_sets_share"] = choices.top_sets_share;
  out["cliques"] = nlohmann::json::array();
  for (const Clique& clique : choices.cliques)
    out["cliques"].push_back({{"experts", clique.experts}, {"share", clique.share}});
  return out;
}

nlohmann::json to_json(const std::vector<LayerMeasures>& layers) {
  nlohmann::json out = nlohmann::json::array();
  for (const LayerMeasures& layer : layers) out.push_back(to_json(layer));
  return out;
}

}  // namespace some
