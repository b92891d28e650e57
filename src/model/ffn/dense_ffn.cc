#include "model/ffn/dense_ffn.h"

#include "core/error.h"
#include "ops/linear.h"

namespace some {

void DenseFfn::settings(SettingList<ModelConfig>& list) {
  list.number("dense_mult", &ModelConfig::dense_mult, 0, 1024,
              "Hidden width of the dense block, as a multiple of d_model.")
      .above_low = true;
  list.role = SettingRole::run;  // only at the start of a run
  list.choice("dense_init", &ModelConfig::dense_init, {"default", "zero"},
              "Initialization of the second matrix of the dense block: like the first (default), or zero.");
  list.role = SettingRole::model;
}

void DenseFfn::check(const ModelConfig& config) {
  if (config.ffn == Ffn::dense && config.dense_hidden() < 1) {
    bad_input(Code::setting_out_of_range,
              "{} = {}: hidden width would be {}; model.dense_mult * model.d_model must be >= 1", "model.dense_mult",
              config.dense_mult, config.dense_hidden());
  }
}

void DenseFfn::declare(Declaration& declare) {
  const std::int64_t d = config_->d_model, hidden = config_->dense_hidden();
  declare.linear(weight_[0], bias_[0], "ffn.0", hidden, d);
  declare.linear(weight_[1], bias_[1], "ffn.1", d, hidden,
                 config_->dense_init == OutputInit::zero ? Initial{Initial::Kind::zero} : uniform(hidden),
                 uniform(hidden));
  conv_.declare(declare);
}

std::unique_ptr<FeedForward::Tape> DenseFfn::forward(Context& ctx, const Pass& pass, const Tensor& x,
                                                     const Tensor*) const {
  auto tape = std::make_unique<Tape>();
  tape->conv_out = conv_.forward(ctx, pass, conv_ ? pass.states(ctx, layer_, x) : x, x);
  tape->pre = ctx.scratch({x.dim(0), config_->dense_hidden()});
  tape->act = ctx.scratch({x.dim(0), config_->dense_hidden()});
  tape->output = ctx.scratch(x.shape());
  linear_gelu_forward(ctx, tape->conv_out, weight_[0], bias_[0], tape->pre, tape->act);
  linear_forward(ctx, tape->act, weight_[1], bias_[1], tape->output);
  return tape;
}

void DenseFfn::backward(Schedule& schedule, const Pass& pass, FeedForward::Tape& kept,
                        const Gradients& gradients) const {
  Context& ctx = schedule.deferring();
  const auto& tape = static_cast<const Tape&>(kept);
  Tensor dact = ctx.scratch(tape.act.shape());
  linear_backward(ctx, gradients.dy, tape.act, weight_[1], bias_[1], &dact, Into::overwrite);
  conv_.backward(ctx, pass, gradients.x, gradients.dx, [&](Tensor& target, Into into) {
    linear_gelu_backward(ctx, tape.pre, dact, tape.conv_out, weight_[0], bias_[0], &target, into);
  });
}

}  // namespace some
