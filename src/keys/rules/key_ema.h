// Routes by a running mean of the keys (spec 4.8): average <- key_ema * average + (1 - key_ema) * K.
#pragma once

#include "keys/rules/rule.h"

namespace some {

struct KeyEmaRule : Rule<KeyEmaRule> {
  struct Settings {
    double key_ema = 0.0;  // 0: route by the keys directly
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    double keep = 0;
    bool operator==(const Plan&) const = default;
  };
  struct State {
    Tensor average;  // [E, size] master; empty without key_ema
  };
  template <typename T>
  struct Memory {
    T* average;  // null without key_ema
  };
  static void declare(SettingList<Settings>& list);
  static Plan plan(const Settings& settings, const UpdateTime&) { return {settings.key_ema}; }
  static void make_state(const Settings& settings, const Tensor& keys, State& state) {
    if (!(settings.key_ema > 0.0))
      state.average = Tensor();
    else if (!state.average)
      state.average = keys.clone();
  }
  template <typename Visit>
  static void tensors(State& state, Visit&& visit) {
    if (state.average) visit("keys_average", state.average);
  }
  template <typename T>
  static Memory<T> memory(Context&, const State& state, const Plan& plan, std::int64_t) {
    if (!(plan.keep > 0.0)) return {nullptr};
    if (!state.average) missing(plan.keep);
    return {state.average.data<T>()};
  }

  template <typename K>
  SOME_HD static void refine(const K& key) {
    const Plan& plan = key.layer.plan;
    if (key.layer.average == nullptr) return;
    auto* mean = key.layer.average + key.expert * key.layer.size;
    key.lanes.each(key.layer.size, [&](std::int64_t j) {
      mean[j] = static_cast<std::remove_reference_t<decltype(mean[j])>>(plan.keep * static_cast<double>(mean[j]) +
                                                                        (1.0 - plan.keep) * key.row[j]);
    });
  }

 private:
  [[noreturn]] static void missing(double key_ema);
};

}  // namespace some
