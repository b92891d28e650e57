#include "model/ffn/router.h"

#include <cmath>

#include "core/error.h"
#include "model/ffn/routing.h"
#include "ops/linear_pair.h"

namespace some {

void Router::settings(SettingList<ModelConfig>& list) {
  list.choice("router", &ModelConfig::router, {"linear", "mlp"},
              "Query network: one linear layer, or an MLP of two with GELU.");
  list.number("router_mult", &ModelConfig::router_mult, 0, 64,
              "Hidden width of the MLP router, as a multiple of d_model.")
      .above_low = true;
  list.role = SettingRole::run;
  list.choice("router_init", &ModelConfig::router_init, {"uniform", "normal"},
              "Initialization of the router: uniform within 1/sqrt(inputs), or normal with standard deviation 0.02 and "
              "no bias.");
  list.role = SettingRole::model;
  list.integer("query_dim", &ModelConfig::query_dim, 0, 65536, "Dimension of queries and keys; 0 = d_model.");
  list.role = SettingRole::training_stage;
  list.choice("routing", &ModelConfig::routing, routing_kinds(),
              "Routing by the nearest keys, or by a fixed hash of the token id (hash routing, a control).");
  list.role = SettingRole::model;
  list.integer("key_partitions", &ModelConfig::key_partitions, 0, 1048576,
               "Partitions of the keys of a layer, whose initial keys are near each other; a query searches only the "
               "nearest; 0 = none.");
  list.role = SettingRole::training_stage;
  list.integer("key_probe", &ModelConfig::key_probe, 1, 1048576,
               "Partitions of the keys that a query searches, if there are several.");
  list.number("ground", &ModelConfig::ground, 0, unlimited,
              "Factor on the query of the layer below, which is added to the query of a layer (study D3).");
}

void Router::gate_settings(SettingList<ModelConfig>& list) {
  list.role = SettingRole::model;
  list.choice("temperature", &ModelConfig::temperature, {"fixed", "learned"},
              "Temperature of the gates: fixed (train_temp, eval_temp), or one trained number per layer.");
  list.role = SettingRole::training_stage;
  list.number("train_temp", &ModelConfig::train_temp, 0, unlimited, "Gate temperature in training.").above_low = true;
  list.number("train_temp_end", &ModelConfig::train_temp_end, -1, unlimited,
              "Gate temperature at the end of training: epoch e of n (from 0) uses train_temp + (train_temp_end - "
              "train_temp)*e/n; negative = constant.");
  list.number("eval_temp", &ModelConfig::eval_temp, 0, unlimited, "Gate temperature in evaluation and generation.")
      .above_low = true;

  list.include(
      key_settings(), [](auto& config) -> auto& { return config.keys; });
  list.number("topk_warmup", &ModelConfig::topk_warmup, 0, 1,
              "Fraction of the steps, from the first, with only one active expert per token.");
  list.number("balance_loss", &ModelConfig::balance_loss, 0, unlimited,
              "Coefficient of the load-balancing loss; 0 = none.");
  Setting<ModelConfig>& band =
      list.add("entropy_band", SettingKind::numbers,
               "[low, high] in nats: a penalty keeps the mean gate entropy in this range; [] = none.");
  band.low = 0;
  band.lengths = {0, 2};
  band.get = [](const ModelConfig& config) {
    if (config.entropy_high < 0) return SettingValue(std::vector<double>{});
    return SettingValue(std::vector<double>{config.entropy_low, config.entropy_high});
  };
  band.set = [](ModelConfig& config, const SettingValue& value) {
    const auto& ends = std::get<std::vector<double>>(value);
    config.entropy_low = ends.empty() ? -1 : ends[0];
    config.entropy_high = ends.empty() ? -1 : ends[1];
  };
  list.number("entropy_coefficient", &ModelConfig::entropy_coefficient, 0, unlimited,
              "Coefficient of the entropy penalty.");
}

void Router::check(const ModelConfig& config) {
  if (config.router == RouterKind::mlp && config.router_hidden() < 1) {
    bad_input(Code::setting_out_of_range,
              "{} = {}: hidden width would be {}; some.router_mult * model.d_model must be >= 1", "some.router_mult",
              config.router_mult, config.router_hidden());
  }
  if (config.query_dim < 0) {
    bad_input(Code::setting_out_of_range, "{} = {}: must be an integer >= 1, or 0 for model.d_model", "some.query_dim",
              config.query_dim);
  }
}

void Router::check_partitions(const ModelConfig& config) {
  if (config.key_partitions <= 1) return;
  if (config.key_partitions > config.experts)
    bad_input(Code::setting_out_of_range, "{} = {}: must not be more than some.experts = {}", "some.key_partitions",
              config.key_partitions, config.experts);
  if (config.routing != RoutingKind::keys)
    bad_input(Code::setting_conflict, "{} = {}: must be 0 with some.routing = \"hash\", which ignores keys",
              "some.key_partitions", config.key_partitions);
  if (config.searches_all_keys()) return;
  const std::int64_t found = std::int64_t{config.key_probe} * (config.experts / config.key_partitions);
  if (found < config.top_k)
    bad_input(Code::setting_out_of_range,
              "{} = {}: a query searches only {} keys in this number of partitions, fewer than some.top_k = {}; raise "
              "some.key_probe",
              "some.key_probe", config.key_probe, found, config.top_k);
  if (config.balance_loss > 0)
    bad_input(Code::setting_conflict,
              "{} = {}: the load-balancing loss reads the scores of all keys; set some.key_partitions = 0, or balance "
              "with some.balance_rate",
              "some.balance_loss", config.balance_loss);
}

void Router::check_gates(const ModelConfig& config) {
  const auto positive = [](const char* key, double value) {
    if (!(value > 0)) bad_input(Code::setting_out_of_range, "{} = {}: must be a number > 0", key, value);
  };
  positive("some.train_temp", config.train_temp);
  positive("some.eval_temp", config.eval_temp);
  if (config.train_temp_end == 0)
    bad_input(Code::setting_out_of_range, "{} = 0: must be a number > 0, or a negative one for no change",
              "some.train_temp_end");
  if (config.train_temp_end > 0 && config.temperature == Temperature::learned) {
    bad_input(Code::setting_conflict,
              "{} = {}: cannot be combined with some.temperature = \"learned\"; omit one of them",
              "some.train_temp_end", config.train_temp_end);
  }
  if (!(config.topk_warmup >= 0 && config.topk_warmup <= 1)) {
    bad_input(Code::setting_out_of_range, "{} = {}: must be a fraction of the steps from 0 to 1", "some.topk_warmup",
              config.topk_warmup);
  }
  if (config.entropy_high >= 0) {
    if (config.entropy_low > config.entropy_high) {
      bad_input(Code::setting_out_of_range, "{} = [{}, {}]: the lower end must be first", "some.entropy_band",
                config.entropy_low, config.entropy_high);
    }
    const double highest = std::log(static_cast<double>(config.top_k));
    if (config.entropy_low > highest) {
      bad_input(Code::setting_out_of_range,
                "{} = [{}, {}]: the gates of some.top_k = {} experts have at most {:.3f} nats, so the lower end must "
                "not be above that",
                "some.entropy_band", config.entropy_low, config.entropy_high, config.top_k, highest);
    }
  }
  check_key_settings(config.keys, config.layers);
  if (config.keys.balance_rate > 0 && config.routing == RoutingKind::hash) {
    bad_input(Code::setting_conflict, "{} = {}: must be 0 with some.routing = \"hash\", which ignores scores",
              "some.balance_rate", config.keys.balance_rate);
  }
}

void Router::declare(Declaration& declare) {
  const std::int64_t d = config_->d_model, hidden = config_->router_hidden(), query = config_->query_size();
  const auto add = [&](int i, std::int64_t out, std::int64_t in) {
    using Kind = Initial::Kind;
    const bool normal = config_->router_init == RouterInit::normal;
    declare.linear(weight_[i], bias_[i], fmt::format("router.{}", i), out, in,
                   normal ? Initial{Kind::normal, 0.02} : uniform(in), normal ? Initial{Kind::zero} : uniform(in));
  };
  if (is_mlp()) {
    add(0, hidden, d);
    add(1, query, hidden);
  } else {
    add(0, query, d);
  }
}

void Router::declare_temperature(Declaration& declare) {
  if (config_->temperature == Temperature::learned)
    declare.add(log_temperature_, "log_temperature", {1}, {Initial::Kind::constant, std::log(config_->train_temp)});
}

void Router::forward(Context& ctx, const Pass& pass, const Tensor& x, const Tensor* previous_query,
                     SecondReader* second, RouterTape& tape) const {
  const std::int64_t tokens = x.dim(0), query = config_->query_size();
  // Query network (spec 3.1).
  tape.raw = ctx.scratch({tokens, query}, ctx.master);
  if (is_mlp()) {
    tape.pre = ctx.scratch({tokens, config_->router_hidden()});
    tape.act = ctx.scratch({tokens, config_->router_hidden()});
    if (second != nullptr)
      linear_two_forward(ctx, x, weight_[0], bias_[0], tape.pre, tape.act, second->weight, second->y);
    else
      linear_gelu_forward(ctx, x, weight_[0], bias_[0], tape.pre, tape.act);
  }
  // Query (spec 3.2).
  tape.query = ctx.scratch({tokens, query}, ctx.master);
  tape.norms = ctx.scratch({tokens, 2}, ctx.master);
  // Selection and gates (spec 3.3, 3.4).
  const int top_k = pass.settings.top_k;
  tape.temperature = log_temperature_ ? ctx.scratch({1}, ctx.master) : pass.temperature;
  tape.routing.indices = ctx.scratch({tokens, top_k}, DType::i32);
  tape.routing.scores = ctx.scratch({tokens, top_k}, ctx.master);
  tape.routing.gates = ctx.scratch({tokens, top_k}, ctx.master);
  const RoutingRule& routing = routing_rule(config_->routing);
  const bool given = routing.choose != nullptr;
  if (given) routing.choose(ctx, *config_, layer_, pass.tokens, tape.routing.indices);
  const int last = is_mlp() ? 1 : 0;
  QueryRoute route{.routing = tape.routing};
  route.raw = tape.raw;
  route.previous = config_->ground > 0 ? previous_query : nullptr;
  route.ground = config_->ground;
  route.keys = keys.routing_keys();
  route.bias = keys.routing_bias();
  route.log_temperature = log_temperature_ ? &log_temperature_.value : nullptr;
  route.choice_given = given;
  route.partitions = {config_->key_partitions, config_->key_probe};
  route.query = tape.query;
  route.norms = tape.norms;
  route.temperature = tape.temperature;
  router_route_forward(ctx, {is_mlp() ? tape.act : x, weight_[last], bias_[last]}, route);
}

RouterBackward Router::begin_backward(Context& ctx, const Pass& pass, const RouterTape& tape, const Tensor* dquery,
                                      Tensor* dprevious_query) const {
  RouterBackward out;
  out.raw = tape.raw;
  out.query = tape.query;
  out.norms = tape.norms;
  out.routing = tape.routing;
  out.keys = keys.routing_keys();
  out.temperature = tape.temperature;
  if (config_->ground > 0 && dprevious_query != nullptr) {
    out.ground = config_->ground;
    out.dprevious = dprevious_query;
  }
  out.auxiliary.balance = config_->balance_loss;
  out.auxiliary.entropy_low = config_->entropy_low;
  out.auxiliary.entropy_high = config_->entropy_high;
  out.auxiliary.entropy_coefficient = config_->entropy_coefficient;
  out.auxiliary.share = pass.auxiliary_share;
  out.auxiliary.targets = pass.counted;
  out.auxiliary.loss = pass.auxiliary_loss;
  out.dquery = dquery;
  out.dlog_temperature = log_temperature_.grad;
  out.dgates = ctx.scratch(tape.routing.gates.shape(), ctx.master);
  if (out.gates_only()) out.draw = ctx.scratch(tape.query.shape());
  if (is_mlp()) {
    out.weight = weight_[1];
    out.bias = bias_[1];
    out.pre = tape.pre;
    out.act = tape.act;
    out.dpre = ctx.scratch(tape.pre.shape());
  }
  return out;
}

void Router::backward(Context& ctx, RouterBackward& rest, const Tensor& x, const SecondReader* second,
                      Tensor& dx) const {
  router_backward(ctx, rest);
  linear_backward(ctx, is_mlp() ? rest.dpre : rest.draw, x, weight_[0], bias_[0], second != nullptr ? nullptr : &dx,
                  Into::add);
  if (second != nullptr) linear_inputs_backward(ctx, second->y, second->weight, rest.dpre, weight_[0], dx, Into::add);
}

}  // namespace some
