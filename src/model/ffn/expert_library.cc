// The expert library itself, frozen, or trained after initialization from it.
#include "core/setting.h"
#include "model/ffn/expert_bank.h"

namespace some {
namespace {

class Library : public ExpertPart {
 public:
  void settings(SettingList<ModelConfig>& list) const override {
    list.choice("training", &ModelConfig::training, {"frozen", "lora", "full"},
                "Training of the experts: none (frozen), a low-rank correction (lora), or all weights (full).");
  }
  bool active(const ModelConfig&) const override { return true; }
  bool learns(const ModelConfig& config) const override { return config.training == ExpertTraining::full; }

  void declare(const ModelConfig& config, ExpertBank& bank, Declaration& declare) const override {
    if (config.has_transforms()) return;
    if (config.use_library) declare.library(bank.w1, "w1", config.d_ffn, config.d_model);
    if (config.experts_have_output()) declare.library(bank.w2, "w2", config.d_model, config.d_ffn);
  }
  void weights(const ExpertBank& bank, ExpertWeights& weights) const override {
    weights = {bank.local_rows(bank.w1.compute), bank.local_rows(bank.w2.compute)};
    weights.hadamard = bank.hadamard;
  }
  // Frozen matrices have no gradient buffers.
  void gradients(const ExpertBank& bank, ExpertGrads& grads) const override {
    grads = {bank.local_rows(bank.w1.grad), bank.local_rows(bank.w2.grad)};
  }
};

}  // namespace

std::unique_ptr<ExpertPart> library_part() { return std::make_unique<Library>(); }

}  // namespace some
