// Balance of the load (spec 4.10): each expert has a number that is added to its score when experts are chosen, and for
// nothing else. It rises where an expert was chosen less than its fair share of the step, and falls where more. A share
// that is off by no more than the slack is left alone: a router that wants to prefer some experts may, within bounds.
#pragma once

#include "core/anneal.h"
#include "keys/rules/rule.h"

namespace some {

struct BiasRule : Rule<BiasRule> {
  struct Settings {
    double balance_rate = 0.0;  // 0: there are no such numbers
    double balance_slack = 0.0;
    Anneal balance_anneal;
    bool use_balance = true;
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    double rate = 0, slack = 0;
    bool operator==(const Plan&) const = default;
  };
  struct State {
    Tensor choice_bias;  // [E] master; empty without balance_rate. It stays in force while use_balance is off
  };
  template <typename T>
  struct Memory {
    T* choice_bias;  // null without balance_rate
  };
  static constexpr const char* name = "balance";
  static constexpr const char* words = "balance of the load";
  static constexpr auto switched = &Settings::use_balance;

  static bool idle(const Settings& settings) { return !(settings.balance_rate > 0.0); }
  static void declare(SettingList<Settings>& list);
  static void check(const KeySettings& settings, int layers);
  // What is learnt late can no longer follow a choice that changes, so the rate may fall as the learning rate does.
  static Plan plan(const Settings& settings, const UpdateTime& time) {
    return {settings.use_balance ? settings.balance_rate * settings.balance_anneal.at(time.progress) : 0.0,
            settings.balance_slack};
  }
  static void make_state(const Settings& settings, const Tensor& keys, State& state) {
    if (idle(settings))
      state.choice_bias = Tensor();
    else if (!state.choice_bias)
      state.choice_bias = Tensor::zeros({keys.dim(0)}, keys.dtype(), keys.device());
  }
  template <typename Visit>
  static void tensors(State& state, Visit&& visit) {
    if (state.choice_bias) visit("choice_bias", state.choice_bias);
  }
  template <typename T>
  static Memory<T> memory(Context&, const State& state, const Plan& plan, std::int64_t) {
    if (plan.rate > 0.0 && !state.choice_bias) missing(plan.rate);
    return {state.choice_bias ? state.choice_bias.data<T>() : nullptr};
  }

  SOME_HD static bool surveys(const Plan& plan) { return plan.rate > 0.0; }

  // The counts are whole numbers below 2^53: exact in any order. An expert has less than its share where E times its
  // count is below the sum of all.
  template <typename Layer, typename Lanes>
  SOME_HD static void survey(const Layer& layer, const Lanes& lanes) {
    const Plan& plan = layer.plan;
    if (!surveys(plan)) return;
    const double all = lanes.sum(layer.experts * layer.top_k,
                                 [&](std::int64_t i) { return static_cast<double>(layer.slot_counts[i]); });
    const double least = all * (1.0 - plan.slack), most = all * (1.0 + plan.slack);
    lanes.each(layer.experts, [&](std::int64_t e) {
      auto& bias = layer.choice_bias[e];
      const double own = static_cast<double>(layer.experts * layer.chosen(e));
      const double moved = static_cast<double>(bias) + (own < least ? plan.rate : own > most ? -plan.rate : 0.0);
      bias = static_cast<std::remove_reference_t<decltype(bias)>>(moved);
    });
  }

 private:
  [[noreturn]] static void missing(double rate);
};

}  // namespace some
