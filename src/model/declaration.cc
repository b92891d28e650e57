#include "model/declaration.h"

#include <cmath>

#include "model/expert_part.h"

namespace some {

Initial uniform(std::int64_t fan_in) { return {Initial::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(fan_in))}; }

void Declaration::in_layer(const Layer* layer) {
  prefix_ = layer != nullptr ? fmt::format("layers.{}.", layer->index) : "";
  in_layer_ = layer != nullptr;
}

Parameter& Declaration::add(Param& bound, const std::string& name, Shape shape, Initial initial, double uses) {
  return list.emplace_back(
      Parameter{prefix_ + name, std::move(shape), initial, Parameter::Kind::trained, in_layer_, false, uses, &bound});
}

void Declaration::linear(Param& weight, Param& bias, const std::string& name, std::int64_t out, std::int64_t in,
                         Initial initial_weight, Initial initial_bias) {
  add(weight, name + ".weight", {out, in}, initial_weight, 1);
  add(bias, name + ".bias", {out}, initial_bias);
}

void Declaration::norm(Param& weight, Param& bias, const std::string& name) {
  add(weight, name + ".weight", {config_.d_model}, {Initial::Kind::one});
  add(bias, name + ".bias", {config_.d_model}, {Initial::Kind::zero});
}

Parameter& Declaration::expert(Param& bound, const std::string& name, std::int64_t out, std::int64_t in,
                               Initial initial) {
  Parameter& one = add(bound, "experts." + name, {config_.experts, out, in}, initial,
                       static_cast<double>(config_.top_k) / config_.experts);
  one.of_expert = true;
  return one;
}

void Declaration::library(Param& bound, const std::string& name, std::int64_t out, std::int64_t in) {
  Parameter& one = expert(bound, name, out, in, {Initial::Kind::library});
  if (config_.training != ExpertTraining::full) one.kind = Parameter::Kind::library;
  Parameter& bias = add(bound, "experts." + name + ".bias", {config_.experts, out}, {Initial::Kind::zero});
  bias.kind = Parameter::Kind::absent;
  bias.bound = nullptr;
}

namespace {

using Kind = Initial::Kind;

void declare_router(const ModelConfig& config, Layer& layer, Declaration& declare) {
  const std::int64_t d = config.d_model, hidden = config.router_hidden(), query = config.query_size();
  const auto add = [&](int i, std::int64_t out, std::int64_t in) {
    const bool normal = config.router_init == RouterInit::normal;
    declare.linear(layer.router_weight[i], layer.router_bias[i], fmt::format("router.{}", i), out, in,
                   normal ? Initial{Kind::normal, 0.02} : uniform(in), normal ? Initial{Kind::zero} : uniform(in));
  };
  if (config.router == Router::mlp) {
    add(0, hidden, d);
    add(1, query, hidden);
  } else {
    add(0, query, d);
  }
}

void declare_layer(const ModelConfig& config, Layer& layer, Declaration& declare) {
  const std::int64_t d = config.d_model, f = config.d_ffn;
  declare.in_layer(&layer);
  declare.linear(layer.qkv_weight, layer.qkv_bias, "attn.qkv", 3 * d, d,
                 {Kind::uniform, std::sqrt(6.0 / (4.0 * static_cast<double>(d)))}, {Kind::zero});
  declare.linear(layer.out_weight, layer.out_bias, "attn.out", d, d, uniform(d), {Kind::zero});
  declare.norm(layer.norm1_weight, layer.norm1_bias, "norm1");
  // A pre-norm block without a feed-forward part has nothing for its second norm to stand before.
  if (!(config.norm == Norm::pre && config.ffn == Ffn::none))
    declare.norm(layer.norm2_weight, layer.norm2_bias, "norm2");
  if (config.ffn == Ffn::dense) {
    declare.linear(layer.dense_weight[0], layer.dense_bias[0], "ffn.0", config.dense_hidden(), d);
    const std::int64_t hidden = config.dense_hidden();
    declare.linear(layer.dense_weight[1], layer.dense_bias[1], "ffn.1", d, hidden,
                   config.dense_init == OutputInit::zero ? Initial{Kind::zero} : uniform(hidden), uniform(hidden));
  }
  if (config.ffn != Ffn::none && config.conv > 0)
    declare.add(layer.conv, "look_back.weight", {config.conv, d}, {Kind::zero}, 1);
  if (config.ffn != Ffn::some) return;
  declare_router(config, layer, declare);
  if (config.input_proj) declare.add(layer.input_proj, "readin.weight", {d, d}, {Kind::identity}, 1);
  const auto output_proj = [&](std::int64_t inputs, Initial usual) {
    declare.add(layer.output_proj, "readout.weight", {d, inputs},
                config.output_proj_init == OutputInit::zero ? Initial{Kind::zero} : usual, 1);
  };
  if (config.output_proj == OutputProj::linear) output_proj(d, {Kind::identity});
  if (config.output_proj == OutputProj::features || config.output_proj == OutputProj::modulated)
    output_proj(f, uniform(f));
  if (config.output_proj == OutputProj::modulated) {
    declare.linear(layer.hidden_weight, layer.hidden_bias, "hidden", f, d);
    declare.add(layer.gains, "gains", {config.experts, f}, {Kind::constant, config.gain_init},
                static_cast<double>(config.top_k) / config.experts);
  }
  if (config.temperature == Temperature::learned)
    declare.add(layer.log_temperature, "log_temperature", {1}, {Kind::constant, std::log(config.train_temp)});
  for (const ExpertPart* part : active_parts(config)) part->declare(config, layer, declare);
}

}  // namespace

std::vector<Parameter> declare_parameters(const ModelConfig& config, ModelParameters& parts) {
  const std::int64_t d = config.d_model, vocab = config.vocab;
  Declaration declare(config);
  declare.add(parts.embed, "embed.weight", {vocab, d}, {Kind::normal, 1.0});
  parts.layers.resize(static_cast<std::size_t>(config.layers));
  for (std::size_t i = 0; i < parts.layers.size(); ++i) {
    parts.layers[i].index = static_cast<int>(i);
    declare_layer(config, parts.layers[i], declare);
  }
  declare.in_layer(nullptr);
  if (config.norm == Norm::pre) declare.norm(parts.final_weight, parts.final_bias, "final_norm");
  declare.linear(parts.head_weight, parts.head_bias, "head", vocab, d);
  return std::move(declare.list);
}

void visit_parameters(const ModelConfig& config, const std::function<void(const Parameter&, double times)>& visit) {
  ModelConfig one = config;
  one.layers = 1;
  ModelParameters parts;
  for (const Parameter& parameter : declare_parameters(one, parts))
    visit(parameter, parameter.in_layer ? config.layers : 1);
}

ParameterCounts count_parameters(const ModelConfig& config) {
  ParameterCounts counts;
  visit_parameters(config, [&](const Parameter& parameter, double times) {
    const std::int64_t count = parameter.count() * static_cast<std::int64_t>(times);
    counts.total += count;
    if (parameter.trained()) counts.trainable += count;
  });
  return counts;
}

}  // namespace some
