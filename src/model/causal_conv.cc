#include "model/causal_conv.h"

#include "core/error.h"

namespace some {

void CausalConv::settings(SettingList<ModelConfig>& list) {
  list.integer(
      "conv", &ModelConfig::conv, 0, 64,
      "Taps of the short causal depthwise convolution before each feed-forward block, initialized to 0; 0 = none.");
}

void CausalConv::check(const ModelConfig& config) {
  if (config.conv < 0 || config.conv > 64)
    bad_input(Code::setting_out_of_range, "{} = {}: must be an integer from 0 to 64", "model.conv", config.conv);
  if (config.conv > 0 && config.ffn == Ffn::none)
    bad_input(Code::setting_conflict, "{} = {}: must be 0 without a feed-forward block", "model.conv", config.conv);
}

void CausalConv::declare(Declaration& declare) {
  if (config_->conv == 0) return;
  declare.add(weight_, "conv.weight", {config_->conv, config_->d_model}, {Initial::Kind::zero}, 1).row_sums = true;
}

Tensor CausalConv::forward(Context& ctx, const Pass& pass, const Tensor& states, const Tensor& x) const {
  if (!weight_) return x;
  Tensor conv_out = ctx.scratch(x.shape());
  conv_forward(ctx, states, pass.past, weight_, conv_out);
  return conv_out;
}

}  // namespace some
