#include "inference/key_learner.h"

#include <cmath>
#include <cstring>

#include "evaluation/evaluate.h"

namespace some {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu), y = b.to(Device::cpu);
  return x.bytes() == y.bytes() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

}  // namespace

KeySettings choose_rules(const KeySettings& settings, const std::string& rules) {
  if (rules.empty()) return settings;
  KeySettings out = settings;
  const std::vector<SwitchedRule> known = switched_rules(out);
  for (const SwitchedRule& rule : known) *rule.on = false;
  for (std::size_t begin = 0; begin <= rules.size();) {
    const std::size_t end = std::min(rules.find(',', begin), rules.size());
    const std::string name = rules.substr(begin, end - begin);
    const auto found = std::find_if(known.begin(), known.end(), [&](const SwitchedRule& r) { return r.name == name; });
    if (found == known.end()) {
      std::string list;
      for (std::size_t i = 0; i < known.size(); ++i)
        list += fmt::format("{}{} ({})",
                            i == 0                  ? ""
                            : i + 1 == known.size() ? " and "
                                                    : ", ",
                            known[i].name, known[i].words);
      bad_input(Code::rule_unknown, "{} {}: '{}' is not a rule; use {}, separated by commas, such as {},{}", "--rules",
                rules, name, list, known[0].name, known[1].name);
    }
    *found->on = true;
    begin = end + 1;
  }
  return out;
}

std::string rules_text(const KeySettings& settings) {
  KeySettings copy = settings;
  std::string out;
  for (const SwitchedRule& rule : switched_rules(copy)) {
    if (*rule.on && !rule.idle) out += fmt::format("{}{}", out.empty() ? "" : ",", rule.name);
  }
  return out.empty() ? "none" : out;
}

const Tensor& KeySnapshot::One::of(const std::string& name) const {
  for (const auto& [own, tensor] : tensors) {
    if (own == name) return tensor;
  }
  failed(Code::parameter_unknown, "a snapshot of keys lacks {}", name);
}

KeySnapshot::KeySnapshot(Model& model) {
  for (Layer& layer : model.layers()) {
    One& kept = layers_.emplace_back();
    visit_key_state(layer.keys,
                    [&](const std::string& name, Tensor& tensor) { kept.tensors.emplace_back(name, tensor.clone()); });
    kept.epoch_counts = model.epoch_counts()[static_cast<std::size_t>(layer.index)].clone();
    kept.steps = layer.keys.steps;
  }
}

void KeySnapshot::restore(Model& model) const {
  for (Layer& layer : model.layers()) {
    const One& kept = layers_[static_cast<std::size_t>(layer.index)];
    visit_key_state(layer.keys, [&](const std::string& name, Tensor& tensor) { tensor.copy_from(kept.of(name)); });
    layer.keys.steps = kept.steps;
    model.epoch_counts()[static_cast<std::size_t>(layer.index)].copy_from(kept.epoch_counts);
  }
}

bool KeySnapshot::bitwise_equal(Model& model) const {
  bool same = true;
  for (Layer& layer : model.layers()) {
    const One& kept = layers_[static_cast<std::size_t>(layer.index)];
    visit_key_state(layer.keys,
                    [&](const std::string& name, Tensor& tensor) { same = same && same_bits(kept.of(name), tensor); });
  }
  return same;
}

KeySnapshot::Distance KeySnapshot::distance(Model& model, int layer) const {
  const std::vector<double> before = read_vector(layers_[static_cast<std::size_t>(layer)].of("keys"));
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
  model_.clear_key_sums(model_.context());
  plans_ = model_.plan_keys(step_, 1.0);
}

KeyLearner::~KeyLearner() { model_.set_key_settings(own_); }

void KeyLearner::observe(int layer, const RouterTape& tape, const Tensor* targets) {
  const auto l = static_cast<std::size_t>(layer);
  add_key_sums(model_.context(), {tape.query, tape.routing, plans_[l], rows_, &model_.key_sums()[l]}, targets);
}

void KeyLearner::update() {
  model_.update_key_stores(model_.context(), plans_);
  model_.clear_key_sums(model_.context());
  ++step_;
  ++updates_;
  rows_ = 0;
  plans_ = model_.plan_keys(step_, 1.0);
}

}  // namespace some
