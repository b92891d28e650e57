// Experts that modulate a trained hidden layer (spec 3.9, some.output_proj = "modulated").
#pragma once

#include "model/ffn/routed_ffn.h"
#include "ops/modulate.h"

namespace some {

class ModulatedFfn : public RoutedFfn {
 public:
  struct Tape : RoutedFfn::Tape {
    Modulation modulation;
    Tensor modulated;  // V of spec 3.9, if the experts are transforms and the device stores it
  };
  using RoutedFfn::RoutedFfn;
  static bool chosen(const ModelConfig& config) { return config.modulates(); }
  static void settings(SettingList<ModelConfig>& list);
  static void check(const ModelConfig& config);
  bool begin_backward(Schedule& schedule, FeedForward::Tape& tape) const override;

 protected:
  std::unique_ptr<RoutedFfn::Tape> make_tape() const override { return std::make_unique<Tape>(); }
  void declare_more(Declaration& declare) override;
  void mix(Context& ctx, const Pass& pass, RoutedFfn::Tape& tape) const override;
  void mix_backward(Schedule& schedule, const Pass& pass, RoutedFfn::Tape& tape,
                    MixGradients& gradients) const override;
  void serve_mix(Context& ctx, const Pass& pass, RoutedFfn::Tape& tape, const Tensor& no_states) const override;
  void serve_mix_backward(Context& ctx, RoutedFfn::Tape& tape, Tensor& dstates, Tensor& dgates,
                          ExpertGrads* grads) const override;

 private:
  Param hidden_weight_, hidden_bias_, gains_;
};

}  // namespace some
