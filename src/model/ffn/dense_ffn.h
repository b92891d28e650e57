// Dense feed-forward block: two trained layers with a GELU between them (model.ffn = "dense").
#pragma once

#include "model/causal_conv.h"
#include "model/ffn/feed_forward.h"

namespace some {

class DenseFfn : public FeedForward {
 public:
  struct Tape : FeedForward::Tape {
    Tensor conv_out;  // input after the convolution
    Tensor pre, act;
  };
  DenseFfn(const ModelConfig& config, int layer) : config_(&config), layer_(layer), conv_(config) {}
  static bool chosen(const ModelConfig& config) { return config.ffn == Ffn::dense; }
  static void settings(SettingList<ModelConfig>& list);
  static void check(const ModelConfig& config);

  void declare(Declaration& declare) override;
  std::unique_ptr<FeedForward::Tape> forward(Context& ctx, const Pass& pass, const Tensor& x,
                                             const Tensor* previous_query) const override;
  void backward(Schedule& schedule, const Pass& pass, FeedForward::Tape& tape,
                const Gradients& gradients) const override;

 private:
  const ModelConfig* config_;
  int layer_;
  CausalConv conv_;
  Param weight_[2], bias_[2];
};

}  // namespace some
