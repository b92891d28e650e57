#include "model/layer.h"

#include <functional>

#include "model/expert_part.h"
#include "model/routing.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/linear_pair.h"
#include "ops/norm.h"

namespace some {

AttentionTape attention_layer_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Tensor& x,
                                      const Tensor& positions, const Sequences& sequences) {
  const std::int64_t tokens = x.dim(0), d = config.d_model;
  AttentionTape tape;
  tape.qkv = ctx.scratch({tokens, 3 * d});
  tape.lse = ctx.scratch({config.heads, tokens}, ctx.master);
  tape.mixed = ctx.scratch({tokens, d});
  tape.output = ctx.scratch({tokens, d});
  linear_forward(ctx, x, layer.qkv_weight, layer.qkv_bias, tape.qkv);
  if (config.position == Position::rope) rope(ctx, tape.qkv, positions, config.heads, false);
  attention_forward(ctx, tape.qkv, sequences, config.heads, config.causal, tape.mixed, tape.lse);
  linear_forward(ctx, tape.mixed, layer.out_weight, layer.out_bias, tape.output);
  return tape;
}

Tensor attention_layer_cached(Context& ctx, const ModelConfig& config, const Layer& layer, const Tensor& x,
                              const Tensor& slots, const Tensor& positions, Tensor& cache) {
  const std::int64_t tokens = x.dim(0), d = config.d_model;
  Tensor qkv = ctx.scratch({tokens, 3 * d}), mixed = ctx.scratch({tokens, d}), output = ctx.scratch({tokens, d});
  linear_forward(ctx, x, layer.qkv_weight, layer.qkv_bias, qkv);
  if (config.position == Position::rope) rope(ctx, qkv, positions, config.heads, false);
  attention_cached(ctx, qkv, slots, positions, config.heads, cache, mixed);
  linear_forward(ctx, mixed, layer.out_weight, layer.out_bias, output);
  return output;
}

void attention_layer_backward(Context& ctx, const ModelConfig& config, const Layer& layer, const AttentionTape& tape,
                              const Tensor& x, const Tensor& positions, const Sequences& sequences, const Tensor& dy,
                              Tensor& dx, bool add) {
  Tensor dmixed = ctx.scratch(tape.mixed.shape());
  Tensor dqkv = ctx.scratch(tape.qkv.shape());
  linear_backward(ctx, dy, tape.mixed, layer.out_weight, layer.out_bias, &dmixed, Into::overwrite);
  attention_backward(ctx, dmixed, tape.qkv, tape.mixed, tape.lse, sequences, config.heads, config.causal, dqkv);
  if (config.position == Position::rope) rope(ctx, dqkv, positions, config.heads, true);
  linear_backward(ctx, dqkv, x, layer.qkv_weight, layer.qkv_bias, &dx, add ? Into::add : Into::overwrite);
}

NormTape norm_layer_forward(Context& ctx, const Tensor& x, const Tensor* addend, const Param& weight,
                            const Param& bias) {
  NormTape tape;
  tape.sum = addend ? ctx.scratch(x.shape()) : x;
  tape.y = ctx.scratch(x.shape());
  tape.mean = ctx.scratch({x.dim(0)}, ctx.master);
  tape.rstd = ctx.scratch({x.dim(0)}, ctx.master);
  add_norm_forward(ctx, x, addend, weight, bias, tape.sum, tape.y, tape.mean, tape.rstd);
  return tape;
}

namespace {

// The states of a block, of this pass and before. In generation the new ones are first put among those that were kept.
Tensor states_of(Context& ctx, const Layer& layer, const Pass& pass, const Tensor& x) {
  if (pass.kept_states.empty()) return x;
  Tensor kept = pass.kept_states[static_cast<std::size_t>(layer.index)];
  scatter_rows(ctx, x, pass.places, kept);
  return kept;
}

// What a block that looks back reads (spec 2).
Tensor conv(Context& ctx, const Layer& layer, const Pass& pass, const Tensor& states, const Tensor& x) {
  if (!layer.conv) return x;
  Tensor looked = ctx.scratch(x.shape());
  conv_forward(ctx, states, pass.past, layer.conv, looked);
  return looked;
}

// Runs backward(gradient of what such a block reads, whether to add to it or to overwrite it) and adds that of x to dx.
template <typename Backward>
void conv_through(Context& ctx, const Layer& layer, const Pass& pass, const Tensor& x, Tensor& dx,
                  Backward&& backward) {
  if (!layer.conv) return backward(dx, Into::add);
  ArenaScope scope(*ctx.arena);
  Tensor dlooked = ctx.scratch(x.shape());
  backward(dlooked, Into::overwrite);
  conv_backward(ctx, dlooked, x, pass.past, layer.conv, dx);
}

}  // namespace

DenseTape dense_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass,
                        const Tensor& x) {
  DenseTape tape;
  tape.looked = conv(ctx, layer, pass, layer.conv ? states_of(ctx, layer, pass, x) : x, x);
  tape.pre = ctx.scratch({x.dim(0), config.dense_hidden()});
  tape.act = ctx.scratch({x.dim(0), config.dense_hidden()});
  tape.output = ctx.scratch(x.shape());
  linear_gelu_forward(ctx, tape.looked, layer.dense_weight[0], layer.dense_bias[0], tape.pre, tape.act);
  linear_forward(ctx, tape.act, layer.dense_weight[1], layer.dense_bias[1], tape.output);
  return tape;
}

void dense_backward(Context& ctx, const Layer& layer, const Pass& pass, DenseTape& tape, const Tensor& x,
                    const Tensor& dy, Tensor& dx) {
  Tensor dact = ctx.scratch(tape.act.shape());
  linear_backward(ctx, dy, tape.act, layer.dense_weight[1], layer.dense_bias[1], &dact, Into::overwrite);
  conv_through(ctx, layer, pass, x, dx, [&](Tensor& target, Into into) {
    linear_gelu_backward(ctx, tape.pre, dact, tape.looked, layer.dense_weight[0], layer.dense_bias[0], &target, into);
  });
}

namespace {

bool keeps_outputs(Context& ctx, const ModelConfig& config, const Pass& pass, const ExpertWeights& weights) {
  return pass.training && !experts_learn(config) && experts_keep_outputs(ctx, weights);
}
ExpertParallelOptions expert_parallel_options(Context& ctx, const ModelConfig& config, const Pass& pass,
                                              const ExpertWeights& weights) {
  return {pass.training && experts_learn(config), keeps_outputs(ctx, config, pass, weights)};
}

// spec 3.9: the trained hidden layer that the experts modulate.
void modulated_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass,
                       const Tensor& states, SomeTape& tape) {
  const std::int64_t tokens = tape.looked.dim(0), f = config.d_ffn;
  Modulation& modulation = tape.modulation;
  modulation.hidden = ctx.scratch({tokens, f});
  linear_forward(ctx, tape.looked, layer.hidden_weight, layer.hidden_bias, modulation.hidden);
  modulation.states = config.token_shift > 0 ? states : tape.seen;
  modulation.token_shift = config.token_shift;
  modulation.rows = pass.past;
  if (!expert_parallel(ctx, config)) modulation.w1 = tape.experts.w1;
  modulation.plan = tape.plan;
  modulation.routing = tape.routing;
  modulation.gains = layer.gains;
  modulation.scale = config.modulation_scale;
  modulation.inside = config.modulation == ModulationPlace::inside;
  if (config.use_library) tape.choices.pre = ctx.scratch({tokens * pass.top_k, f});
  if (expert_parallel(ctx, config))
    expert_parallel_modulate_forward(ctx, modulation, tape.experts.w1,
                                     expert_parallel_options(ctx, config, pass, tape.experts), tape.spread,
                                     tape.choices.pre);
  tape.mixed = ctx.scratch({tokens, f});
  modulate_forward(ctx, modulation, tape.choices.pre, tape.mixed);
}

// dmixed is overwritten; dseen: of what the experts see, ADDED to, as is dx.
void modulated_backward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass, SomeTape& tape,
                        const Tensor& x, Tensor& dmixed, Tensor& dseen, Tensor& dgates, ExpertGrads* grads,
                        Tensor& dx) {
  Tensor dhidden = ctx.scratch(dmixed.shape());
  modulate_backward(ctx, dmixed, tape.modulation, tape.choices.pre, dhidden, dseen, dgates, grads);
  if (expert_parallel(ctx, config))
    expert_parallel_modulate_backward(ctx, tape.modulation, tape.experts.w1, tape.choices.pre, tape.spread, dseen,
                                      grads);
  conv_through(ctx, layer, pass, x, dx, [&](Tensor& target, Into into) {
    linear_backward(ctx, dhidden, tape.looked, layer.hidden_weight, layer.hidden_bias, &target, into);
  });
}

// Where read-in and router read the same, their products are done together.
bool input_proj_with_router(const ModelConfig& config, const Layer& layer) {
  return layer.input_proj && !layer.conv && !config.modulates() && config.router == Router::mlp;
}

// What the choice has the ranks do before any state travels.
ExpertParallelTape announce_assignments(Context& ctx, const ModelConfig& config, const Pass& pass,
                                        const Routing& routing) {
  return begin_expert_parallel(ctx, config.experts, routing, pass.past, config.modulates() ? config.token_shift : 0);
}

}  // namespace

SomeTape some_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass, const Tensor& x,
                      const Tensor* previous_query) {
  const std::int64_t tokens = x.dim(0), d = config.d_model, query = config.query_size();
  SomeTape tape;
  // spec 3.1: the query network
  tape.raw = ctx.scratch({tokens, query}, ctx.master);
  tape.seen = layer.input_proj ? ctx.scratch({tokens, d}) : x;
  const bool readin_too = input_proj_with_router(config, layer);
  if (config.router == Router::mlp) {
    tape.router_pre = ctx.scratch({tokens, config.router_hidden()});
    tape.router_act = ctx.scratch({tokens, config.router_hidden()});
    if (readin_too) {
      linear_two_forward(ctx, x, layer.router_weight[0], layer.router_bias[0], tape.router_pre, tape.router_act,
                         layer.input_proj, tape.seen);
    } else {
      linear_gelu_forward(ctx, x, layer.router_weight[0], layer.router_bias[0], tape.router_pre, tape.router_act);
    }
  }
  // spec 3.2: the query
  tape.query = ctx.scratch({tokens, query}, ctx.master);
  tape.norms = ctx.scratch({tokens, 2}, ctx.master);
  // spec 3.3, 3.4: choice and gates
  tape.temperature = layer.log_temperature ? ctx.scratch({1}, ctx.master) : pass.fixed_temperature;
  tape.routing.indices = ctx.scratch({tokens, pass.top_k}, DType::i32);
  tape.routing.scores = ctx.scratch({tokens, pass.top_k}, ctx.master);
  tape.routing.gates = ctx.scratch({tokens, pass.top_k}, ctx.master);
  const RoutingRule& routing = routing_rule(config.routing);
  const bool given = routing.choose != nullptr;
  if (given) routing.choose(ctx, config, layer.index, *pass.tokens, tape.routing.indices);
  const bool hidden = config.router == Router::mlp;
  router_route_forward(
      ctx, {hidden ? tape.router_act : x, layer.router_weight[hidden ? 1 : 0], layer.router_bias[hidden ? 1 : 0]},
      tape.raw, config.ground > 0 ? previous_query : nullptr, config.ground, tape.query, tape.norms,
      layer.keys.routing_keys(), layer.keys.routing_bias(),
      layer.log_temperature ? &layer.log_temperature.value : nullptr, tape.temperature, given, tape.routing);
  const Tensor states = config.past() > 0 ? states_of(ctx, layer, pass, x) : x;
  tape.looked = conv(ctx, layer, pass, states, x);
  // spec 3.8: the read-in
  if (layer.input_proj && !readin_too)
    linear_forward(ctx, config.modulates() ? x : tape.looked, layer.input_proj, Param(), tape.seen);
  // spec 3.5: the experts
  const bool spread = expert_parallel(ctx, config);
  if (spread) tape.spread = announce_assignments(ctx, config, pass, tape.routing);
  if (!spread || config.modulates())
    tape.plan = make_dispatch(ctx, tape.routing.indices, config.experts, tape.routing.counts);
  for (const ExpertPart* part : active_parts(config)) part->weights(ctx, layer, tape.experts);
  if (config.modulates()) {
    modulated_forward(ctx, config, layer, pass, states, tape);
    tape.output = ctx.scratch({tokens, d});
    linear_forward(ctx, tape.mixed, layer.output_proj, Param(), tape.output);
    return tape;
  }
  if (spread) {
    tape.mixed = ctx.scratch({tokens, tape.experts.w2 ? d : config.d_ffn});
    expert_parallel_forward(ctx, tape.experts, expert_parallel_options(ctx, config, pass, tape.experts), tape.seen,
                            tape.routing, tape.spread, tape.mixed);
  } else {
    tape.choices.pre = ctx.scratch({tokens * pass.top_k, config.d_ffn});
    if (keeps_outputs(ctx, config, pass, tape.experts)) tape.choices.outputs = ctx.scratch({tokens * pass.top_k, d});
    if (tape.experts.low1) tape.choices.low1 = ctx.scratch({tokens * pass.top_k, tape.experts.low1.rank()});
    if (tape.experts.low2) tape.choices.low2 = ctx.scratch({tokens * pass.top_k, tape.experts.low2.rank()});
    tape.mixed = ctx.scratch({tokens, tape.experts.w2 ? d : config.d_ffn});
    experts_forward(ctx, tape.seen, tape.experts, tape.plan, tape.routing.gates, tape.choices, tape.mixed);
  }
  // spec 3.6: the readout
  if (layer.output_proj) {
    tape.output = ctx.scratch({tokens, d});
    linear_forward(ctx, tape.mixed, layer.output_proj, Param(), tape.output);
  } else {
    tape.output = tape.mixed;
  }
  return tape;
}

void some_backward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass, SomeTape& tape,
                   const Tensor& x, const Tensor& dy, const Tensor* dquery_above, Tensor* dquery_below, Tensor& dx) {
  const bool grounded = config.ground > 0 && dquery_below != nullptr;
  const bool readin_later = input_proj_with_router(config, layer);
  Tensor dmixed = dy;
  if (layer.output_proj) {
    dmixed = ctx.scratch(tape.mixed.shape());
    linear_backward(ctx, dy, tape.mixed, layer.output_proj, Param(), &dmixed, Into::overwrite);
  }

  // Gradient reaches the router through the gates only: keys and choice are not differentiated (spec 3).
  Tensor dgates = ctx.scratch(tape.routing.gates.shape(), ctx.master);
  Tensor dlog_temperature = layer.log_temperature.grad;
  Tensor* const dlog = dlog_temperature ? &dlog_temperature : nullptr;
  Tensor* const dprevious = grounded ? dquery_below : nullptr;
  const double ground = grounded ? config.ground : 0.0;
  const bool banded = config.entropy_low >= 0 || config.entropy_high >= 0;
  const bool gates_only = config.balance_loss <= 0 && dquery_above == nullptr;  // nothing else reaches the query
  Tensor draw = gates_only ? ctx.scratch(tape.query.shape()) : Tensor();
  Tensor dpre = config.router == Router::mlp ? ctx.scratch(tape.router_pre.shape()) : Tensor();
  const auto gates_backward = [&] {
    route_query_backward(ctx, dgates, tape.routing, layer.keys.routing_keys(), tape.temperature, tape.raw, tape.query,
                         tape.norms, ground, draw, dprevious, dlog);
  };
  const auto router_end_backward = [&] {
    linear_after_gelu_backward(ctx, draw, tape.router_act, layer.router_weight[1], layer.router_bias[1],
                               tape.router_pre, dpre);
  };
  // The way back through the gates as far as it touches nothing that the experts' way back touches.
  const bool early =
      gates_only && !banded && config.router == Router::mlp && !config.modulates() && !expert_parallel(ctx, config);
  ExpertGrads grads;
  for (const ExpertPart* part : active_parts(config)) part->gradients(ctx, layer, grads);
  Tensor dseen = layer.input_proj ? ctx.scratch(tape.seen.shape()) : dx;
  ExpertGrads* const learnt = grads.w1 || grads.w2 ? &grads : nullptr;
  if (config.modulates()) {
    if (layer.input_proj) fill(ctx, 0, dseen);
    modulated_backward(ctx, config, layer, pass, tape, x, dmixed, dseen, dgates, learnt, dx);
    if (layer.input_proj) linear_backward(ctx, dseen, x, layer.input_proj, Param(), &dx, Into::add);
  } else {
    const Into into = layer.input_proj ? Into::overwrite : Into::add;
    if (expert_parallel(ctx, config))
      expert_parallel_backward(ctx, dmixed, tape.experts, tape.spread, dseen, into, dgates, learnt);
    else
      experts_backward(ctx, dmixed, tape.seen, tape.experts, tape.plan, tape.routing.gates, tape.choices, dseen, into,
                       dgates, learnt,
                       early ? std::function<void()>([&] {
                         gates_backward();
                         router_end_backward();
                       })
                             : nullptr);
    if (readin_later) {
      linear_backward(ctx, dseen, tape.looked, layer.input_proj, Param(), nullptr, Into::add);
    } else if (layer.input_proj) {
      conv_through(ctx, layer, pass, x, dx, [&](Tensor& target, Into into) {
        linear_backward(ctx, dseen, tape.looked, layer.input_proj, Param(), &target, into);
      });
    }
  }

  Tensor auxiliary = pass.auxiliary_loss;
  if (banded) {
    entropy_band_loss(ctx, tape.routing.gates, pass.taking_part, config.entropy_low, config.entropy_high,
                      config.entropy_coefficient * pass.auxiliary_share, dgates, auxiliary);
  }
  if (!gates_only) {
    Tensor dquery = ctx.scratch(tape.query.shape(), ctx.master);
    route_backward(ctx, dgates, tape.routing, layer.keys.routing_keys(), tape.temperature, dquery, dlog);
    if (config.balance_loss > 0) {
      balance_loss(ctx, tape.query, layer.keys.routing_keys(), tape.temperature, tape.routing.indices, pass.taking_part,
                   config.balance_loss * pass.auxiliary_share, dquery, auxiliary);
    }
    if (dquery_above) add_into(ctx, *dquery_above, dquery);
    draw = ctx.compute == ctx.master ? dquery : ctx.scratch(dquery.shape());  // in place where it can be
    query_backward(ctx, dquery, tape.raw, tape.query, tape.norms, ground, draw, dprevious);
  } else if (!early) {
    gates_backward();
  }

  if (config.router == Router::mlp) {
    if (!early) router_end_backward();
    linear_backward(ctx, dpre, x, layer.router_weight[0], layer.router_bias[0], readin_later ? nullptr : &dx,
                    Into::add);
    if (readin_later) linear_inputs_backward(ctx, dseen, layer.input_proj, dpre, layer.router_weight[0], dx, Into::add);
  } else {
    linear_backward(ctx, draw, x, layer.router_weight[0], layer.router_bias[0], &dx, Into::add);
  }
}

SomeTape some_serve_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass) {
  SomeTape tape;
  tape.routing.indices = ctx.scratch({0, config.top_k}, DType::i32);
  tape.routing.gates = ctx.scratch({0, config.top_k}, ctx.master);
  tape.spread = announce_assignments(ctx, config, pass, tape.routing);
  for (const ExpertPart* part : active_parts(config)) part->weights(ctx, layer, tape.experts);
  const Tensor none = ctx.scratch({0, config.d_model});
  if (config.modulates()) {
    tape.modulation.states = none;
    tape.choices.pre = ctx.scratch({0, config.d_ffn});
    expert_parallel_modulate_forward(ctx, tape.modulation, tape.experts.w1,
                                     expert_parallel_options(ctx, config, pass, tape.experts), tape.spread,
                                     tape.choices.pre);
  } else {
    tape.mixed = ctx.scratch({0, tape.experts.w2 ? config.d_model : config.d_ffn});
    expert_parallel_forward(ctx, tape.experts, expert_parallel_options(ctx, config, pass, tape.experts), none,
                            tape.routing, tape.spread, tape.mixed);
  }
  return tape;
}

void some_serve_backward(Context& ctx, const ModelConfig& config, const Layer& layer, SomeTape& tape) {
  const ArenaScope scope(*ctx.arena);
  ExpertGrads grads;
  for (const ExpertPart* part : active_parts(config)) part->gradients(ctx, layer, grads);
  ExpertGrads* const learnt = grads.w1 || grads.w2 ? &grads : nullptr;
  Tensor dstates = ctx.scratch({0, config.d_model}), dgates = ctx.scratch({0, config.top_k}, ctx.master);
  if (config.modulates())
    expert_parallel_modulate_backward(ctx, tape.modulation, tape.experts.w1, tape.choices.pre, tape.spread, dstates,
                                      learnt);
  else
    expert_parallel_backward(ctx, tape.mixed, tape.experts, tape.spread, dstates, Into::add, dgates, learnt);
}

}  // namespace some
