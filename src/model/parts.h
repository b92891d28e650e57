// All blocks of a model, which hold its parameters.
#pragma once

#include <memory>
#include <vector>

#include "model/declaration.h"
#include "model/layer.h"
#include "model/layer_norm.h"

namespace some {

struct ModelParameters {
  explicit ModelParameters(const ModelConfig& config);

  std::unique_ptr<ModelConfig> config;  // read by all blocks; settings that may change later are changed here
  Param embed, head_weight, head_bias;
  LayerNorm final_norm;  // only for norm = "pre"
  std::vector<Layer> layers;
};

// In the order of the parameter store. The pointers are valid while parts.layers is not resized.
std::vector<Parameter> declare_parameters(ModelParameters& parts);

}  // namespace some
