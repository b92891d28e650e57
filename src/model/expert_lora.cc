// A low-rank correction of every matrix of the library: w + b a.
#include <algorithm>

#include "base/error.h"
#include "base/setting.h"
#include "model/expert_part.h"
#include "ops/elementwise.h"

namespace some::model {
namespace {

class Lora : public ExpertPart {
 public:
  void settings(SettingList<ModelConfig>& list) const override {
    list.integer("lora_rank", &ModelConfig::lora_rank, 1, 4096, "Rank of the correction with training = \"lora\".");
  }
  bool active(const ModelConfig& config) const override { return config.training == ExpertTraining::lora; }
  bool learns(const ModelConfig&) const override { return true; }

  void check(const ModelConfig& config) const override {
    const int smaller = std::min(config.d_model, config.d_ffn);
    if (config.lora_rank < 1)
      bad_input("some.lora_rank = {}: wants a whole number of at least 1", config.lora_rank);
    if (config.lora_rank > smaller) {
      bad_input("some.lora_rank = {}: must not be more than the smaller side of an expert's matrix, {}",
                config.lora_rank, smaller);
    }
  }

  void declare(const ModelConfig& config, Layer& layer, Declaration& declare) const override {
    const std::int64_t d = config.d_model, f = config.d_ffn, rank = config.lora_rank;
    // The second factor starts at zero, so that training begins from the frozen library (Hu et al., 2021).
    declare.expert(layer.lora_w1_a, "w1.lora_a", rank, d, uniform(d));
    declare.expert(layer.lora_w1_b, "w1.lora_b", f, rank, {Initial::Kind::zero});
    if (config.readout == Readout::features) return;
    declare.expert(layer.lora_w2_a, "w2.lora_a", rank, f, uniform(f));
    declare.expert(layer.lora_w2_b, "w2.lora_b", d, rank, {Initial::Kind::zero});
  }

  void weights(Context& ctx, const Layer& layer, ExpertWeights& weights) const override {
    const auto merge = [&](Tensor& matrix, const Param& a, const Param& b) {
      if (!matrix) return;
      Tensor merged = ctx.scratch(matrix.shape());
      lora_merge(ctx, matrix, a.value, b.value, merged);
      matrix = merged;
    };
    merge(weights.w1, layer.lora_w1_a, layer.lora_w1_b);
    merge(weights.w2, layer.lora_w2_a, layer.lora_w2_b);
  }
  void gradients(Context& ctx, const Layer& layer, ExpertGrads& grads) const override {
    const auto room = [&](const Param& matrix, Tensor& gradient) {
      if (!matrix) return;
      gradient = ctx.scratch(matrix.compute.shape(), ctx.master);
      fill(ctx, 0, gradient);
    };
    room(layer.w1, grads.w1);
    room(layer.w2, grads.w2);
  }
  void finish(Context& ctx, const Layer& layer, const ExpertGrads& grads) const override {
    lora_project(ctx, grads.w1, layer.lora_w1_a, layer.lora_w1_b);
    if (grads.w2) lora_project(ctx, grads.w2, layer.lora_w2_a, layer.lora_w2_b);
  }
};

}  // namespace

std::unique_ptr<ExpertPart> lora_part() { return std::make_unique<Lora>(); }

}  // namespace some::model
