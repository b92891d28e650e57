#include "model/expert_part.h"

#include "core/setting.h"

namespace some {

Tensor local_rows(const Layer& layer, const Tensor& of_experts) {
  // A part of a frozen library is held by itself; what learns is held whole.
  if (!of_experts || !layer.held || of_experts.dim(0) == layer.held->count()) return of_experts;
  return of_experts.rows(layer.held->begin, layer.held->end);
}

Param local_rows(const Layer& layer, const Param& of_experts) {
  return {local_rows(layer, of_experts.value), local_rows(layer, of_experts.compute),
          local_rows(layer, of_experts.grad)};
}

const std::vector<std::unique_ptr<ExpertPart>>& expert_parts() {
  static const std::vector<std::unique_ptr<ExpertPart>> parts = [] {
    std::vector<std::unique_ptr<ExpertPart>> all;
    all.push_back(library_part());
    all.push_back(lora_part());
    return all;
  }();
  return parts;
}

std::vector<const ExpertPart*> active_parts(const ModelConfig& config) {
  std::vector<const ExpertPart*> parts;
  for (const auto& part : expert_parts()) {
    if (part->active(config)) parts.push_back(part.get());
  }
  return parts;
}

bool experts_learn(const ModelConfig& config) {
  for (const ExpertPart* part : active_parts(config)) {
    if (part->learns(config)) return true;
  }
  return false;
}

}  // namespace some
