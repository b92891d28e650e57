#include "model/ffn/modulated_ffn.h"

#include "core/error.h"
#include "ops/elementwise.h"
#include "ops/hadamard.h"
#include "ops/linear.h"

namespace some {

void ModulatedFfn::settings(SettingList<ModelConfig>& list) {
  list.role = SettingRole::model;
  list.choice(
      "modulation", &ModelConfig::modulation, {"multiplicative", "additive"},
      "If output_proj = \"modulated\": experts scale the hidden layer after its GELU, or add to it before the GELU.");
  list.number("modulation_scale", &ModelConfig::modulation_scale, 0, unlimited, "Factor on the modulation.").above_low =
      true;
  list.role = SettingRole::run;  // only at the start of a run
  list.number("gain_init", &ModelConfig::gain_init, -unlimited, unlimited,
              "Initialization of the trained gains, one per expert and hidden unit.");
  list.role = SettingRole::model;
  list.integer(
      "token_shift", &ModelConfig::token_shift, 0, 64,
      "Token shift: expert e reads the hidden state 1 + e mod token_shift tokens earlier; 0 = the current token.");
  list.boolean("use_library", &ModelConfig::use_library,
               "Modulating experts have matrices; false leaves only their gains (a control).");
}

void ModulatedFfn::check(const ModelConfig& config) {
  const bool modulates = config.output_proj == OutputProj::modulated;
  if (config.conv > 0 && !modulates && !config.input_proj) {
    bad_input(
        Code::setting_conflict,
        "{} = {}: frozen experts see only their token; set some.input_proj = true or some.output_proj = \"modulated\"",
        "model.conv", config.conv);
  }
  if (config.token_shift < 0 || config.token_shift > 64)
    bad_input(Code::setting_out_of_range, "{} = {}: must be an integer from 0 to 64", "some.token_shift",
              config.token_shift);
  if (config.token_shift > 0 && (!modulates || config.input_proj || !config.use_library)) {
    bad_input(Code::setting_conflict,
              "{} = {}: requires some.output_proj = \"modulated\", with a library and without some.input_proj",
              "some.token_shift", config.token_shift);
  }
  if (!config.use_library && !modulates)
    bad_input(Code::setting_conflict,
              "{} = false: requires some.output_proj = \"modulated\"; other forms would be empty without it",
              "some.use_library");
  if (!config.use_library && config.input_proj)
    bad_input(Code::setting_conflict, "{} = true: has no effect with some.use_library = false", "some.input_proj");
  if (modulates &&
      (config.training == ExpertTraining::lora || (config.training == ExpertTraining::full && !config.use_library)))
    bad_input(Code::setting_conflict,
              "{} = \"{}\": with some.output_proj = \"modulated\" must be \"frozen\", or \"full\" with a library",
              "some.training", config.training == ExpertTraining::lora ? "lora" : "full");
  if (!(config.modulation_scale > 0))
    bad_input(Code::setting_out_of_range, "{} = {}: must be a number > 0", "some.modulation_scale",
              config.modulation_scale);
}

void ModulatedFfn::declare_more(Declaration& declare) {
  declare.linear(hidden_weight_, hidden_bias_, "hidden", config_->d_ffn, config_->d_model);
  declare.add(gains_, "gains", {config_->experts, config_->d_ffn}, {Initial::Kind::constant, config_->gain_init},
              static_cast<double>(config_->top_k) / config_->experts);
}

void ModulatedFfn::mix(Context& ctx, const Pass& pass, RoutedFfn::Tape& kept) const {
  auto& tape = static_cast<Tape&>(kept);
  const std::int64_t tokens = tape.conv_out.dim(0), f = config_->d_ffn,
                     width = pass.training && config_->has_transforms()
                                 ? hadamard_modulate_width(ctx, tape.weights.hadamard)
                                 : f;
  Modulation& modulation = tape.modulation;
  modulation.hidden = ctx.scratch({tokens, width});
  linear_forward(ctx, tape.conv_out, hidden_weight_, hidden_bias_, modulation.hidden);
  modulation.states = config_->token_shift > 0 ? tape.states : tape.seen;
  modulation.token_shift = config_->token_shift;
  modulation.rows = pass.past;
  if (!parallel(ctx)) modulation.w1 = tape.weights.w1;
  modulation.plan = tape.plan;
  modulation.routing = tape.router.routing;
  modulation.gains = gains_;
  modulation.scale = config_->modulation_scale;
  modulation.additive = config_->modulation == ModulationPlace::additive;
  if (config_->has_transforms()) {
    modulation.hadamard = tape.weights.hadamard;
    if (pass.training && hadamard_keeps_modulation(ctx)) tape.modulated = ctx.scratch({tokens, width});
    tape.mixed = ctx.scratch({tokens, width});
    return hadamard_modulate_forward(ctx, modulation, tape.modulated, tape.mixed);
  }
  if (config_->use_library) tape.choices.pre = ctx.scratch({tokens * pass.settings.top_k, f});
  if (parallel(ctx))
    expert_parallel_modulation_forward(ctx, modulation, tape.weights.w1, parallel_keeps(ctx, pass, tape.weights),
                                       tape.parallel, tape.choices.pre);
  tape.mixed = ctx.scratch({tokens, f});
  modulate_forward(ctx, modulation, tape.choices.pre, tape.mixed);
}

bool ModulatedFfn::begin_backward(Schedule& schedule, FeedForward::Tape& kept) const {
  if (!config_->has_transforms()) return false;
  auto& tape = static_cast<Tape&>(kept);
  tape.modulation.plan = hadamard_modulate_plan(schedule.fork(), tape.modulation);
  return true;
}

void ModulatedFfn::mix_backward(Schedule& schedule, const Pass& pass, RoutedFfn::Tape& kept,
                                MixGradients& gradients) const {
  Context& ctx = schedule.deferring();
  auto& tape = static_cast<Tape&>(kept);
  Tensor& dseen = gradients.dseen;
  if (input_proj_) fill(ctx, 0, dseen);
  Tensor dhidden = ctx.scratch(gradients.dmixed.shape());
  if (config_->has_transforms())
    hadamard_modulate_backward(ctx, gradients.dmixed, tape.modulation, tape.modulated, dhidden, dseen,
                               gradients.router.dgates, &schedule);
  else
    modulate_backward(ctx, gradients.dmixed, tape.modulation, tape.choices.pre, dhidden, dseen, gradients.router.dgates,
                      gradients.grads);
  if (parallel(ctx))
    expert_parallel_modulation_backward(ctx, tape.modulation, tape.weights.w1, tape.choices.pre, tape.parallel, dseen,
                                        gradients.grads);
  conv_.backward(ctx, pass, gradients.x, gradients.dx, [&](Tensor& target, Into into) {
    linear_backward(ctx, dhidden, tape.conv_out, hidden_weight_, hidden_bias_, &target, into);
  });
  if (input_proj_) linear_backward(ctx, dseen, gradients.x, input_proj_, Param(), &gradients.dx, Into::add);
}

void ModulatedFfn::serve_mix(Context& ctx, const Pass& pass, RoutedFfn::Tape& kept, const Tensor& no_states) const {
  auto& tape = static_cast<Tape&>(kept);
  tape.modulation.states = no_states;
  tape.choices.pre = ctx.scratch({0, config_->d_ffn});
  expert_parallel_modulation_forward(ctx, tape.modulation, tape.weights.w1, parallel_keeps(ctx, pass, tape.weights),
                                     tape.parallel, tape.choices.pre);
}

void ModulatedFfn::serve_mix_backward(Context& ctx, RoutedFfn::Tape& kept, Tensor& dstates, Tensor&,
                                      ExpertGrads* grads) const {
  auto& tape = static_cast<Tape&>(kept);
  expert_parallel_modulation_backward(ctx, tape.modulation, tape.weights.w1, tape.choices.pre, tape.parallel, dstates,
                                      grads);
}

}  // namespace some
