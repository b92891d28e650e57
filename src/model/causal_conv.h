// Short causal depthwise convolution before a feed-forward block (spec 2, model.conv = n): adds to each hidden state
// the n states before it, each scaled by a trained per-channel weight.
#pragma once

#include "core/setting.h"
#include "model/declaration.h"
#include "model/pass.h"
#include "ops/conv.h"
#include "ops/linear.h"
#include "runtime/context.h"

namespace some {

class CausalConv {
 public:
  explicit CausalConv(const ModelConfig& config) : config_(&config) {}
  static void settings(SettingList<ModelConfig>& list);
  static void check(const ModelConfig& config);
  void declare(Declaration& declare);

  explicit operator bool() const { return static_cast<bool>(weight_); }
  // states: Pass::states of x. Returns x if there is no convolution.
  Tensor forward(Context& ctx, const Pass& pass, const Tensor& states, const Tensor& x) const;
  // Calls backward(dlooked, into), which computes the gradient with respect to the result of forward(), and adds the
  // gradient of x to dx.
  template <typename Backward>
  void backward(Context& ctx, const Pass& pass, const Tensor& x, Tensor& dx, Backward&& backward) const {
    if (!weight_) return backward(dx, Into::add);
    const ArenaScope scope(*ctx.arena);
    Tensor dlooked = ctx.scratch(x.shape());
    backward(dlooked, Into::overwrite);
    conv_backward(ctx, dlooked, x, pass.past, weight_, dx);
  }

 private:
  const ModelConfig* config_;
  Param weight_;
};

}  // namespace some
