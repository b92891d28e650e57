#include "model/ffn/expert_ffn.h"

#include "core/error.h"
#include "ops/experts.h"
#include "ops/hadamard.h"

namespace some {

void ExpertFfn::settings(SettingList<ModelConfig>& list) {
  list.role = SettingRole::model;
  list.boolean("input_proj", &ModelConfig::input_proj,
               "Trained input projection of the experts, initialized to the identity; the router does not use it.");
  list.choice("output_proj", &ModelConfig::output_proj, {"none", "linear", "features", "modulated"},
              "Trained output projection: applied to the sum of the experts (linear), in place of their second "
              "matrices (features), or after a trained hidden layer that the experts modulate (modulated).");
  list.role = SettingRole::run;  // only at the start of a run
  list.choice(
      "output_proj_init", &ModelConfig::output_proj_init, {"default", "zero"},
      "Initialization of the output projection: the identity (linear) or random (features, modulated), or zero.");
}

void ExpertFfn::check(const ModelConfig& config) {
  if (config.output_proj_init == OutputInit::zero && config.output_proj == OutputProj::none)
    bad_input(Code::setting_conflict,
              "{} = \"zero\": some.output_proj is \"none\"; set it to \"linear\" or \"features\", or omit this",
              "some.output_proj_init");
}

void ExpertFfn::mix(Context& ctx, const Pass& pass, Tape& tape) const {
  const std::int64_t tokens = tape.seen.dim(0), d = config_->d_model, f = config_->d_ffn;
  const ExpertWeights& weights = tape.weights;
  const Routing& routing = tape.router.routing;
  if (parallel(ctx)) {
    tape.mixed = ctx.scratch({tokens, weights.w2 ? d : f});
    expert_parallel_forward(ctx, weights, parallel_keeps(ctx, pass, weights), tape.seen, routing, tape.parallel,
                            tape.mixed);
    return;
  }
  tape.mixed = ctx.scratch({tokens, weights.has_w2() ? d : f});
  if (without_plan(weights))
    return hadamard_experts_forward(ctx, tape.seen, weights.hadamard, routing.indices, routing.gates, tape.mixed);
  const std::int64_t choices = tokens * pass.settings.top_k;
  tape.choices.pre = ctx.scratch({choices, f});
  if (keeps_outputs(ctx, pass, weights)) tape.choices.outputs = ctx.scratch({choices, d});
  if (weights.low1) tape.choices.low1 = ctx.scratch({choices, weights.low1.rank()});
  if (weights.low2) tape.choices.low2 = ctx.scratch({choices, weights.low2.rank()});
  experts_forward(ctx, tape.seen, weights, tape.plan, routing.gates, tape.choices, tape.mixed);
}

void ExpertFfn::mix_backward(Schedule& schedule, const Pass& pass, Tape& tape, MixGradients& gradients) const {
  Context& ctx = schedule.deferring();
  const Into into = input_proj_ ? Into::overwrite : Into::add;
  RouterBackward& router = gradients.router;
  if (parallel(ctx)) {
    expert_parallel_backward(ctx, gradients.dmixed, tape.weights, tape.parallel, gradients.dseen, into, router.dgates,
                             gradients.grads);
  } else if (without_plan(tape.weights)) {
    hadamard_experts_backward(ctx, {gradients.dmixed, tape.seen, tape.weights.hadamard, tape.router.routing.indices,
                                    tape.router.routing.gates, gradients.dseen, into, router.dgates, &router});
  } else {
    experts_backward(ctx, {gradients.dmixed, tape.seen, tape.weights, tape.plan, tape.router.routing.gates,
                           tape.choices, gradients.dseen, into, router.dgates, gradients.grads, &router, &schedule});
  }
  if (shares_input()) {  // the router adds its gradient to this one
    linear_backward(ctx, gradients.dseen, tape.conv_out, input_proj_, Param(), nullptr, Into::add);
  } else if (input_proj_) {
    conv_.backward(ctx, pass, gradients.x, gradients.dx, [&](Tensor& target, Into how) {
      linear_backward(ctx, gradients.dseen, tape.conv_out, input_proj_, Param(), &target, how);
    });
  }
}

void ExpertFfn::serve_mix(Context& ctx, const Pass& pass, Tape& tape, const Tensor& no_states) const {
  tape.mixed = ctx.scratch({0, tape.weights.w2 ? config_->d_model : config_->d_ffn});
  expert_parallel_forward(ctx, tape.weights, parallel_keeps(ctx, pass, tape.weights), no_states, tape.router.routing,
                          tape.parallel, tape.mixed);
}

void ExpertFfn::serve_mix_backward(Context& ctx, Tape& tape, Tensor& dstates, Tensor& dgates,
                                   ExpertGrads* grads) const {
  expert_parallel_backward(ctx, tape.mixed, tape.weights, tape.parallel, dstates, Into::add, dgates, grads);
}

}  // namespace some
