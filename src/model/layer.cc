#include "model/layer.h"

#include "model/expert_part.h"
#include "model/routing.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace some::model {

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
  ArenaScope scope(*ctx.arena);
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

DenseTape dense_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Tensor& x) {
  DenseTape tape;
  tape.pre = ctx.scratch({x.dim(0), config.dense_hidden()});
  tape.act = ctx.scratch({x.dim(0), config.dense_hidden()});
  tape.output = ctx.scratch(x.shape());
  linear_gelu_forward(ctx, x, layer.dense_weight[0], layer.dense_bias[0], tape.pre, tape.act);
  linear_forward(ctx, tape.act, layer.dense_weight[1], layer.dense_bias[1], tape.output);
  return tape;
}

void dense_backward(Context& ctx, const Layer& layer, DenseTape& tape, const Tensor& x, const Tensor& dy, Tensor& dx) {
  ArenaScope scope(*ctx.arena);
  Tensor dact = ctx.scratch(tape.act.shape());
  linear_backward(ctx, dy, tape.act, layer.dense_weight[1], layer.dense_bias[1], &dact, Into::overwrite);
  linear_gelu_backward(ctx, tape.pre, dact, x, layer.dense_weight[0], layer.dense_bias[0], &dx, Into::add);
}

SomeTape some_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass, const Tensor& x,
                      const Tensor* previous_query) {
  const std::int64_t tokens = x.dim(0), d = config.d_model, query = config.query_size();
  SomeTape tape;
  // spec 3.1: the query network
  tape.raw = ctx.scratch({tokens, query}, ctx.master);
  if (config.router == Router::mlp) {
    tape.router_pre = ctx.scratch({tokens, config.router_hidden()});
    tape.router_act = ctx.scratch({tokens, config.router_hidden()});
    linear_gelu_forward(ctx, x, layer.router_weight[0], layer.router_bias[0], tape.router_pre, tape.router_act);
    linear_forward(ctx, tape.router_act, layer.router_weight[1], layer.router_bias[1], tape.raw);
  } else {
    linear_forward(ctx, x, layer.router_weight[0], layer.router_bias[0], tape.raw);
  }
  // spec 3.2: the query
  tape.query = ctx.scratch({tokens, query}, ctx.master);
  tape.norms = ctx.scratch({tokens, 2}, ctx.master);
  query_forward(ctx, tape.raw, config.ground > 0 ? previous_query : nullptr, config.ground, tape.query, tape.norms);
  // spec 3.3, 3.4: choice and gates
  if (layer.log_temperature) {
    tape.temperature = ctx.scratch({1}, ctx.master);
    exponential(ctx, layer.log_temperature.value, tape.temperature);
  } else {
    tape.temperature = pass.fixed_temperature;
  }
  tape.routing.indices = ctx.scratch({tokens, pass.top_k}, DType::i32);
  tape.routing.scores = ctx.scratch({tokens, pass.top_k}, ctx.master);
  tape.routing.gates = ctx.scratch({tokens, pass.top_k}, ctx.master);
  const RoutingRule& routing = routing_rule(config.routing);
  const bool given = routing.choose != nullptr;
  if (given) routing.choose(ctx, config, layer.index, *pass.tokens, tape.routing.indices);
  route_forward(ctx, tape.query, layer.keys.routing_keys(), tape.temperature, given, tape.routing);
  // spec 3.8: the read-in
  tape.seen = x;
  if (layer.readin) {
    tape.seen = ctx.scratch({tokens, d});
    linear_forward(ctx, x, layer.readin, Param(), tape.seen);
  }
  // spec 3.5: the experts
  tape.plan = make_dispatch(ctx, tape.routing.indices, config.experts);
  for (const ExpertPart* part : active_parts(config)) part->weights(ctx, layer, tape.experts);
  tape.choices.pre = ctx.scratch({tokens * pass.top_k, config.d_ffn});
  if (pass.training && !experts_learn(config) && experts_keep_outputs(ctx, tape.experts))
    tape.choices.outputs = ctx.scratch({tokens * pass.top_k, d});
  tape.mixed = ctx.scratch({tokens, tape.experts.w2 ? d : config.d_ffn});
  experts_forward(ctx, tape.seen, tape.experts, tape.plan, tape.routing.gates, tape.choices, tape.mixed);
  // spec 3.6: the readout
  if (layer.readout) {
    tape.output = ctx.scratch({tokens, d});
    linear_forward(ctx, tape.mixed, layer.readout, Param(), tape.output);
  } else {
    tape.output = tape.mixed;
  }
  return tape;
}

Tensor some_backward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass, SomeTape& tape,
                     const Tensor& x, const Tensor& dy, const Tensor* dquery_above, bool has_previous, Tensor& dx) {
  Tensor dquery_below;
  const bool grounded = config.ground > 0 && has_previous;
  if (grounded) {
    dquery_below = ctx.scratch(tape.query.shape(), ctx.master);
    fill(ctx, 0, dquery_below);
  }
  ArenaScope scope(*ctx.arena);
  Tensor dmixed = dy;
  if (layer.readout) {
    dmixed = ctx.scratch(tape.mixed.shape());
    linear_backward(ctx, dy, tape.mixed, layer.readout, Param(), &dmixed, Into::overwrite);
  }

  Tensor dgates = ctx.scratch(tape.routing.gates.shape(), ctx.master);
  ExpertGrads grads;
  const std::vector<const ExpertPart*> parts = active_parts(config);
  for (const ExpertPart* part : parts) part->gradients(ctx, layer, grads);
  Tensor dseen = dx;
  if (layer.readin) {
    dseen = ctx.scratch(tape.seen.shape());
    fill(ctx, 0, dseen);
  }
  experts_backward(ctx, dmixed, tape.seen, tape.experts, tape.plan, tape.routing.gates, tape.choices, dseen, dgates,
                   grads.w1 || grads.w2 ? &grads : nullptr);
  if (layer.readin) linear_backward(ctx, dseen, x, layer.readin, Param(), &dx, Into::add);
  for (const ExpertPart* part : parts) part->finish(ctx, layer, grads);

  // Gradient reaches the router through the gates only: keys and choice are not differentiated (spec 3).
  Tensor auxiliary = pass.auxiliary_loss;
  if (config.entropy_low >= 0 || config.entropy_high >= 0) {
    entropy_band_loss(ctx, tape.routing.gates, pass.taking_part, config.entropy_low, config.entropy_high,
                      config.entropy_coefficient * pass.auxiliary_share, dgates, auxiliary);
  }
  Tensor dquery = ctx.scratch(tape.query.shape(), ctx.master);
  Tensor dtemperature;
  if (layer.log_temperature) {
    dtemperature = ctx.scratch({1}, ctx.master);
    fill(ctx, 0, dtemperature);
  }
  route_backward(ctx, dgates, tape.routing, layer.keys.routing_keys(), tape.temperature, dquery,
                 dtemperature ? &dtemperature : nullptr);
  if (dtemperature) {
    Tensor target = layer.log_temperature.grad;
    multiply_add(ctx, dtemperature, tape.temperature, target);  // d log t = t dt
  }
  if (config.balance_loss > 0) {
    balance_loss(ctx, tape.query, layer.keys.routing_keys(), tape.temperature, tape.routing.indices, pass.taking_part,
                 config.balance_loss * pass.auxiliary_share, dquery, auxiliary);
  }
  if (dquery_above) add_into(ctx, *dquery_above, dquery);
  Tensor draw = ctx.compute == ctx.master ? dquery : ctx.scratch(dquery.shape());  // in place where it can be
  query_backward(ctx, dquery, tape.raw, tape.query, tape.norms, grounded ? config.ground : 0.0, draw,
                 grounded ? &dquery_below : nullptr);

  if (config.router == Router::mlp) {
    Tensor dact = ctx.scratch(tape.router_act.shape());
    linear_backward(ctx, draw, tape.router_act, layer.router_weight[1], layer.router_bias[1], &dact, Into::overwrite);
    linear_gelu_backward(ctx, tape.router_pre, dact, x, layer.router_weight[0], layer.router_bias[0], &dx, Into::add);
  } else {
    linear_backward(ctx, draw, x, layer.router_weight[0], layer.router_bias[0], &dx, Into::add);
  }
  return dquery_below;
}

}  // namespace some::model
