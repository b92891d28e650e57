// The experts of one layer: the matrices of the library, frozen or trained, and trained corrections of them. A part
// (such as LoRA) is an object that declares its settings and parameters and takes part in a pass; it has its own file
// and one line in the table of expert_bank.cc. Several may be active at once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/setting.h"
#include "model/declaration.h"
#include "ops/experts.h"
#include "runtime/context.h"

namespace some {

class ExpertBank {
 public:
  explicit ExpertBank(const ModelConfig& config) : config_(&config) {}
  static void settings(SettingList<ModelConfig>& list);
  static void check(const ModelConfig& config);
  void declare(Declaration& declare);

  // Generates or loads the library; with expert parallelism, a frozen library only for the experts of this rank.
  // Collective over the ranks that share the experts.
  void make_library(Context& ctx, int layer);
  // Returns the matrices that this rank computes with. Scratch memory is valid until the end of the pass.
  ExpertWeights weights() const;
  // Returns the gradients that those of the matrices are added to; empty unless they are trained.
  ExpertGrads gradients() const;

  // Frozen matrices have only `compute`: the library, or this rank's part of it. w1 is empty without some.use_library;
  // w2 unless the experts have a second matrix.
  Param w1, w2;
  Param lora_w1_a, lora_w1_b, lora_w2_a, lora_w2_b;  // training = "lora"
  HadamardExperts hadamard;                          // some.init = "hadamard", unless trained: w1 and w2 are empty
  std::uint64_t library_hash = 0;                    // number of experts of the layer
  std::optional<Block> local;                        // the experts that this rank computes; none: all

  // Returns this rank's rows of a tensor or parameter with one row per expert.
  Tensor local_rows(const Tensor& of_experts) const;
  Param local_rows(const Param& of_experts) const;

 private:
  const ModelConfig* config_;
};

class ExpertPart {
 public:
  virtual ~ExpertPart() = default;
  virtual void settings(SettingList<ModelConfig>&) const {}
  virtual bool active(const ModelConfig& config) const = 0;
  // Checks the settings of an active part. Messages begin with the recipe key at fault.
  virtual void check(const ModelConfig&) const {}
  virtual void declare(const ModelConfig&, ExpertBank&, Declaration&) const {}

  // Forward pass: adds this part to what the previous parts contributed.
  virtual void weights(const ExpertBank&, ExpertWeights&) const {}
  // Backward pass: returns the gradients of the matrices, which are added to. Parts that do not train the matrices
  // leave them empty.
  virtual void gradients(const ExpertBank&, ExpertGrads&) const {}
  virtual bool learns(const ModelConfig&) const { return false; }
};

std::unique_ptr<ExpertPart> library_part();  // training = "frozen" or "full"
std::unique_ptr<ExpertPart> lora_part();     // training = "lora"

bool experts_learn(const ModelConfig& config);

}  // namespace some
