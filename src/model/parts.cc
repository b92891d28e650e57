#include "model/parts.h"

namespace some {

ModelParameters::ModelParameters(const ModelConfig& given) : config(std::make_unique<ModelConfig>(given)) {
  layers.reserve(static_cast<std::size_t>(config->layers));
  for (int i = 0; i < config->layers; ++i) layers.emplace_back(*config, i);
}

std::vector<Parameter> declare_parameters(ModelParameters& parts) {
  const ModelConfig& config = *parts.config;
  const std::int64_t d = config.d_model, vocab = config.vocab;
  Declaration declare(config);
  declare.add(parts.embed, "embed.weight", {vocab, d}, {Initial::Kind::normal, 1.0});
  for (Layer& layer : parts.layers) {
    declare.in_layer(layer.index);
    layer.declare(declare);
  }
  declare.outside_of_layers();
  if (config.norm == Norm::pre) parts.final_norm.declare(declare, "final_norm");
  declare.outside_of_layers(config.layers);
  declare.linear(parts.head_weight, parts.head_bias, "head", vocab, d);
  return std::move(declare.list);
}

}  // namespace some
