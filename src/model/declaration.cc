#include "model/declaration.h"

#include <cmath>

#include "model/parts.h"

namespace some {

Initial uniform(std::int64_t fan_in) { return {Initial::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(fan_in))}; }

void Declaration::in_layer(int layer) {
  prefix_ = fmt::format("layers.{}.", layer);
  layer_ = layer;
}

void Declaration::outside_of_layers(int layer) {
  prefix_.clear();
  layer_ = layer;
}

Parameter& Declaration::add(Param& bound, const std::string& name, Shape shape, Initial initial, double uses) {
  Parameter& one = list.emplace_back();
  one.name = prefix_ + name;
  one.shape = std::move(shape);
  one.initial = initial;
  one.layer = layer_;
  one.uses = uses;
  one.bound = &bound;
  one.row_sums = one.shape.rank() < 2;
  return one;
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

void visit_parameters(const ModelConfig& config, const std::function<void(const Parameter&, double times)>& visit) {
  ModelConfig one = config;
  one.layers = 1;
  ModelParameters parts(one);
  for (const Parameter& parameter : declare_parameters(parts))
    visit(parameter, parameter.layer == 0 ? config.layers : 1);
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
