#include "evaluation/layer_measures.h"

#include <cmath>

namespace some {

UsageMeasures usage_measures(const std::vector<double>& usage) {
  UsageMeasures out{gini(usage), entropy_bits(usage), effective_experts(usage), max_over_mean_load(usage), 0};
  for (const double u : usage) out.experts_used += u > 0;
  return out;
}

std::vector<LayerMeasures> layer_measures(Model& model, const std::vector<ChoiceMeasures>& choices,
                                          const std::vector<Tensor>& start) {
  std::vector<LayerMeasures> layers;
  if (model.config().ffn != Ffn::some) return layers;
  for (Layer& layer : model.layers()) {
    const auto l = static_cast<std::size_t>(layer.index);
    LayerMeasures one;
    one.layer = layer.index;
    one.count = usage_measures(read_vector(layer.keys.usage));
    one.mass = usage_measures(read_vector(layer.keys.mass));
    for (const double c : read_vector(model.epoch_counts()[l])) one.experts_used_this_epoch += c > 0;
    const std::vector<double> keys = read_vector(layer.keys.keys);
    const std::vector<double> origin = l < start.size() ? read_vector(start[l]) : std::vector<double>();
    const auto width = static_cast<std::size_t>(layer.keys.keys.dim(1));
    double least = INFINITY, most = 0, sum = 0, moved = 0, moved_most = 0;
    for (int e = 0; e < model.config().experts; ++e) {
      double square = 0, distance = 0;
      for (std::size_t j = 0; j < width; ++j) {
        const std::size_t at = static_cast<std::size_t>(e) * width + j;
        square += keys[at] * keys[at];
        if (!origin.empty()) distance += (keys[at] - origin[at]) * (keys[at] - origin[at]);
      }
      const double norm = std::sqrt(square);
      least = std::min(least, norm);
      most = std::max(most, norm);
      sum += norm;
      moved += std::sqrt(distance);
      moved_most = std::max(moved_most, std::sqrt(distance));
    }
    const double experts = model.config().experts;
    one.key_norm = {least, sum / experts, most};
    if (!origin.empty()) one.key_moved = {moved / experts, moved_most};
    const std::vector<double> counts = read_vector(layer.keys.counts);
    one.births = counts[0];
    one.deaths = counts[1];
    if (l < choices.size())
      one.validation = {usage_measures(choices[l].counts), usage_measures(choices[l].mass), choices[l]};
    layers.push_back(std::move(one));
  }
  return layers;
}

}  // namespace some
