#include "model/expert_part.h"

#include "base/setting.h"

namespace some::model {

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

}  // namespace some::model
