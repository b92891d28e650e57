#include "study/learner.h"

#include <cmath>
#include <cstring>

#include "train/evaluate.h"

namespace some::study {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu), y = b.to(Device::cpu);
  return x.bytes() == y.bytes() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

}  // namespace

KeySettings choose_rules(const KeySettings& settings, const std::string& rules) {
  if (rules.empty()) return settings;
  KeySettings out = settings;
  out.use_alpha = out.use_beta = out.use_delta = false;
  for (std::size_t begin = 0; begin <= rules.size();) {
    const std::size_t end = std::min(rules.find(',', begin), rules.size());
    const std::string rule = rules.substr(begin, end - begin);
    if (rule == "alpha")
      out.use_alpha = true;
    else if (rule == "beta")
      out.use_beta = true;
    else if (rule == "delta")
      out.use_delta = true;
    else
      bad_input(
          "--rules {}: '{}' is no rule; say alpha (attraction), beta (pull between experts chosen together) and delta "
          "(decay) with commas between, such as alpha,beta",
          rules, rule);
    begin = end + 1;
  }
  return out;
}

std::string rules_text(const KeySettings& settings) {
  std::string out;
  for (const auto& [on, name] : {std::pair{settings.use_alpha, "alpha"}, std::pair{settings.use_beta, "beta"},
                                 std::pair{settings.use_delta, "delta"}}) {
    if (on) out += fmt::format("{}{}", out.empty() ? "" : ",", name);
  }
  return out.empty() ? "none" : out;
}

KeySnapshot::KeySnapshot(Model& model) {
  for (Layer& layer : model.layers()) {
    const KeyState& state = layer.keys;
    layers_.push_back({state.keys.clone(), state.usage.clone(), state.mass.clone(),
                       state.average ? state.average.clone() : Tensor(), state.counts.clone(),
                       model.epoch_counts()[static_cast<std::size_t>(layer.index)].clone(), state.steps});
  }
}

void KeySnapshot::restore(Model& model) const {
  for (Layer& layer : model.layers()) {
    const One& kept = layers_[static_cast<std::size_t>(layer.index)];
    KeyState& state = layer.keys;
    state.keys.copy_from(kept.keys);
    state.usage.copy_from(kept.usage);
    state.mass.copy_from(kept.mass);
    if (kept.average) state.average.copy_from(kept.average);
    state.counts.copy_from(kept.counts);
    state.steps = kept.steps;
    model.epoch_counts()[static_cast<std::size_t>(layer.index)].copy_from(kept.epoch_counts);
  }
}

bool KeySnapshot::identical(Model& model) const {
  for (const Layer& layer : model.layers()) {
    const One& kept = layers_[static_cast<std::size_t>(layer.index)];
    const KeyState& state = layer.keys;
    if (!same_bits(kept.keys, state.keys) || !same_bits(kept.usage, state.usage) || !same_bits(kept.mass, state.mass))
      return false;
    if (kept.average && !same_bits(kept.average, state.average)) return false;
  }
  return true;
}

KeySnapshot::Distance KeySnapshot::distance(Model& model, int layer) const {
  const std::vector<double> before = read_vector(layers_[static_cast<std::size_t>(layer)].keys);
  const std::vector<double> now = read_vector(model.layers()[static_cast<std::size_t>(layer)].keys.keys);
  const auto experts = static_cast<std::size_t>(model.config().experts),
             d = static_cast<std::size_t>(model.config().query_size());
  Distance out;
  for (std::size_t e = 0; e < experts; ++e) {
    double square = 0;
    for (std::size_t j = e * d; j < (e + 1) * d; ++j) square += (now[j] - before[j]) * (now[j] - before[j]);
    out.mean += std::sqrt(square) / static_cast<double>(experts);
    out.most = std::max(out.most, std::sqrt(square));
  }
  return out;
}

KeyLearner::KeyLearner(Model& model, const KeySettings& settings, std::int64_t step)
    : model_(model), own_(model.config().keys), step_(step) {
  model_.set_key_settings(settings);
  model_.clear_key_sums();
}

KeyLearner::~KeyLearner() { model_.set_key_settings(own_); }

void KeyLearner::observe(int layer, const SomeTape& tape, const Tensor* targets) {
  const SumOptions options{model_.config().keys.update_fraction,
                           random_stream(model_.config().seed, fmt::format("keys.{}.{}", layer, step_)), rows_};
  add_key_sums(model_.context(), tape.query, tape.routing, targets, options,
               model_.key_sums()[static_cast<std::size_t>(layer)]);
}

void KeyLearner::update() {
  model_.update_key_stores(step_, 1.0);
  model_.clear_key_sums();
  ++step_;
  ++updates_;
  rows_ = 0;
}

}  // namespace some::study
