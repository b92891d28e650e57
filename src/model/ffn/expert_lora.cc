// LoRA: a low-rank correction of every library matrix, w + b a, which is never materialized (kernels/gemm/low_rank.h).
#include <algorithm>

#include "core/error.h"
#include "core/setting.h"
#include "model/ffn/expert_bank.h"

namespace some {
namespace {

class Lora : public ExpertPart {
 public:
  void settings(SettingList<ModelConfig>& list) const override {
    list.integer("lora_rank", &ModelConfig::lora_rank, 1, 4096, "Rank of the correction if training = \"lora\".");
  }
  bool active(const ModelConfig& config) const override { return config.training == ExpertTraining::lora; }
  bool learns(const ModelConfig&) const override { return true; }

  void check(const ModelConfig& config) const override {
    const int smaller = std::min(config.d_model, config.d_ffn);
    if (config.lora_rank < 1)
      bad_input(Code::setting_out_of_range, "{} = {}: must be an integer >= 1", "some.lora_rank", config.lora_rank);
    if (config.lora_rank > smaller) {
      bad_input(Code::setting_out_of_range, "{} = {}: must not exceed the smaller dimension of an expert's matrix, {}",
                "some.lora_rank", config.lora_rank, smaller);
    }
  }

  void declare(const ModelConfig& config, ExpertBank& bank, Declaration& declare) const override {
    const std::int64_t d = config.d_model, f = config.d_ffn, rank = config.lora_rank;
    // The second factor starts at zero, so that training begins from the frozen library (Hu et al., 2021).
    declare.expert(bank.lora_w1_a, "w1.lora_a", rank, d, uniform(d));
    declare.expert(bank.lora_w1_b, "w1.lora_b", f, rank, {Initial::Kind::zero});
    if (config.output_proj == OutputProj::features) return;
    declare.expert(bank.lora_w2_a, "w2.lora_a", rank, f, uniform(f));
    declare.expert(bank.lora_w2_b, "w2.lora_b", d, rank, {Initial::Kind::zero});
  }

  void weights(const ExpertBank& bank, ExpertWeights& weights) const override {
    weights.low1 = {bank.local_rows(bank.lora_w1_a), bank.local_rows(bank.lora_w1_b)};
    weights.low2 = {bank.local_rows(bank.lora_w2_a), bank.local_rows(bank.lora_w2_b)};
  }
};

}  // namespace

std::unique_ptr<ExpertPart> lora_part() { return std::make_unique<Lora>(); }

}  // namespace some
