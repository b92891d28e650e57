// Additive experts: each token receives the sum of its experts' outputs, weighted by their gates (spec 3.5). With
// some.output_proj = "features", each expert has one matrix, and the output projection is shared.
#pragma once

#include "model/ffn/routed_ffn.h"

namespace some {

class ExpertFfn : public RoutedFfn {
 public:
  using RoutedFfn::RoutedFfn;
  static bool chosen(const ModelConfig& config) { return config.ffn == Ffn::some && !config.modulates(); }
  static void settings(SettingList<ModelConfig>& list);
  static void check(const ModelConfig& config);

 protected:
  void mix(Context& ctx, const Pass& pass, Tape& tape) const override;
  void mix_backward(Schedule& schedule, const Pass& pass, Tape& tape, MixGradients& gradients) const override;
  void serve_mix(Context& ctx, const Pass& pass, Tape& tape, const Tensor& no_states) const override;
  void serve_mix_backward(Context& ctx, Tape& tape, Tensor& dstates, Tensor& dgates, ExpertGrads* grads) const override;
};

}  // namespace some
