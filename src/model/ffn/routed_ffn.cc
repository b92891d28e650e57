#include "model/ffn/routed_ffn.h"

#include "ops/linear.h"

namespace some {
namespace {

ExpertGrads* trained(ExpertGrads& grads) { return grads.w1 || grads.w2 ? &grads : nullptr; }

}  // namespace

RoutedFfn::RoutedFfn(const ModelConfig& config, int layer)
    : config_(&config), layer_(layer), router_(config, layer), experts_(config), conv_(config) {}

void RoutedFfn::declare(Declaration& declare) {
  const std::int64_t d = config_->d_model, f = config_->d_ffn;
  using Kind = Initial::Kind;
  conv_.declare(declare);
  router_.declare(declare);
  if (config_->input_proj) declare.add(input_proj_, "input_proj.weight", {d, d}, {Kind::identity}, 1);
  const auto output_proj = [&](std::int64_t inputs, Initial usual) {
    declare.add(output_proj_, "output_proj.weight", {d, inputs},
                config_->output_proj_init == OutputInit::zero ? Initial{Kind::zero} : usual, 1);
  };
  if (config_->output_proj == OutputProj::linear) output_proj(d, {Kind::identity});
  if (config_->output_proj == OutputProj::features || config_->output_proj == OutputProj::modulated)
    output_proj(f, uniform(f));
  declare_more(declare);
  router_.declare_temperature(declare);
  experts_.declare(declare);
}

bool RoutedFfn::shares_input() const {
  return input_proj_ && !conv_ && !config_->modulates() && config_->router == RouterKind::mlp;
}

bool RoutedFfn::keeps_outputs(Context& ctx, const Pass& pass, const ExpertWeights& weights) const {
  return pass.training && !experts_learn(*config_) && experts_keep_outputs(ctx, weights);
}

ExpertParallelKeeps RoutedFfn::parallel_keeps(Context& ctx, const Pass& pass, const ExpertWeights& weights) const {
  return {pass.training && experts_learn(*config_), keeps_outputs(ctx, pass, weights)};
}

std::unique_ptr<FeedForward::Tape> RoutedFfn::forward(Context& ctx, const Pass& pass, const Tensor& x,
                                                      const Tensor* previous_query) const {
  const std::int64_t tokens = x.dim(0), d = config_->d_model;
  std::unique_ptr<Tape> tape = make_tape();
  tape->seen = input_proj_ ? ctx.scratch({tokens, d}) : x;
  SecondReader second{input_proj_, tape->seen};
  router_.forward(ctx, pass, x, previous_query, shares_input() ? &second : nullptr, tape->router);
  tape->states = config_->past() > 0 ? pass.states(ctx, layer_, x) : x;
  tape->conv_out = conv_.forward(ctx, pass, tape->states, x);
  // Input projection (spec 3.8).
  if (input_proj_ && !shares_input())
    linear_forward(ctx, config_->modulates() ? x : tape->conv_out, input_proj_, Param(), tape->seen);
  // Experts (spec 3.5).
  const Routing& routing = tape->router.routing;
  if (parallel(ctx)) tape->parallel = expert_parallel_dispatch(ctx, *config_, routing, pass.past);
  tape->weights = experts_.weights();
  if (!without_plan(tape->weights) && (!parallel(ctx) || config_->modulates()))
    tape->plan = make_dispatch(ctx, routing.indices, config_->experts, routing.counts);
  mix(ctx, pass, *tape);
  // Output projection (spec 3.6).
  if (output_proj_) {
    tape->output = ctx.scratch({tokens, d});
    linear_forward(ctx, tape->mixed, output_proj_, Param(), tape->output);
  } else {
    tape->output = tape->mixed;
  }
  return tape;
}

void RoutedFfn::backward(Schedule& schedule, const Pass& pass, FeedForward::Tape& kept,
                         const Gradients& gradients) const {
  Context& ctx = schedule.deferring();
  auto& tape = static_cast<Tape&>(kept);
  Tensor dmixed = gradients.dy;
  if (output_proj_) {
    dmixed = ctx.scratch(tape.mixed.shape());
    linear_backward(ctx, gradients.dy, tape.mixed, output_proj_, Param(), &dmixed, Into::overwrite);
  }
  // Gradients reach the router only through the gates: keys and selection are not differentiated (spec 3).
  RouterBackward router = router_.begin_backward(ctx, pass, tape.router, gradients.dquery, gradients.dprevious_query);
  ExpertGrads grads = experts_.gradients();
  MixGradients mixing{gradients.x,    dmixed, input_proj_ ? ctx.scratch(tape.seen.shape()) : gradients.dx,
                      trained(grads), router, gradients.dx};
  mix_backward(schedule, pass, tape, mixing);
  const SecondReader second{input_proj_, mixing.dseen};
  router_.backward(ctx, router, gradients.x, shares_input() ? &second : nullptr, gradients.dx);
}

std::unique_ptr<FeedForward::Tape> RoutedFfn::serve_forward(Context& ctx, const Pass& pass) const {
  std::unique_ptr<Tape> tape = make_tape();
  Routing& routing = tape->router.routing;
  routing.indices = ctx.scratch({0, config_->top_k}, DType::i32);
  routing.gates = ctx.scratch({0, config_->top_k}, ctx.master);
  tape->parallel = expert_parallel_dispatch(ctx, *config_, routing, pass.past);
  tape->weights = experts_.weights();
  const Tensor none = ctx.scratch({0, config_->d_model});
  serve_mix(ctx, pass, *tape, none);
  return tape;
}

void RoutedFfn::serve_backward(Context& ctx, FeedForward::Tape& kept) const {
  const ArenaScope scope(*ctx.arena);
  ExpertGrads grads = experts_.gradients();
  Tensor dstates = ctx.scratch({0, config_->d_model}), dgates = ctx.scratch({0, config_->top_k}, ctx.master);
  serve_mix_backward(ctx, static_cast<Tape&>(kept), dstates, dgates, trained(grads));
}

}  // namespace some
