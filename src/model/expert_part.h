// What the experts' weights are made of: the library, frozen or learning, and what is trained on top of it. A part is
// an object that declares its settings and parameters and takes part in a pass; it stands in a file of its own and in
// the table of expert_part.cc, and nowhere else. Several may be active at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/declaration.h"
#include "model/layer.h"

namespace some {

class ExpertPart {
 public:
  virtual ~ExpertPart() = default;
  virtual void settings(SettingList<ModelConfig>&) const {}
  virtual bool active(const ModelConfig& config) const = 0;
  // Of an active part; a message begins with the recipe key at fault.
  virtual void check(const ModelConfig&) const {}
  virtual void declare(const ModelConfig&, Layer&, Declaration&) const {}

  // Forward: what the experts compute with, by the parts before; scratch memory lives as long as the pass.
  virtual void weights(Context&, const Layer&, ExpertWeights&) const {}
  // Backward: where the gradients of the matrices themselves go (added to). ModelParameters that leave them empty do
  // not train them.
  virtual void gradients(Context&, const Layer&, ExpertGrads&) const {}
  virtual bool learns(const ModelConfig&) const { return false; }
};

// Of a tensor with a row for each expert, or of what is learnt with one, the rows of those that this rank computes
// with.
Tensor local_rows(const Layer& layer, const Tensor& of_experts);
Param local_rows(const Layer& layer, const Param& of_experts);

std::unique_ptr<ExpertPart> library_part();  // training = "frozen" or "full"
std::unique_ptr<ExpertPart> lora_part();     // training = "lora"

const std::vector<std::unique_ptr<ExpertPart>>& expert_parts();
// Those of a configuration, in the order of the table.
std::vector<const ExpertPart*> active_parts(const ModelConfig& config);
bool experts_learn(const ModelConfig& config);

}  // namespace some
