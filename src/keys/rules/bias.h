// Loss-free load-balancing bias (spec 4.10): each expert has a bias that is added to its score for top-k selection
// only. It rises if the expert was chosen less than the uniform load in this step, and falls if more. Deviations up to
// balance_slack are ignored, so that a router may prefer some experts within bounds.
#pragma once

#include "core/anneal.h"
#include "keys/rules/rule.h"

namespace some {

struct BiasRule : Rule<BiasRule> {
  struct Settings {
    double balance_rate = 0.0;  // 0: no bias
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
    Tensor choice_bias;  // [E] master; empty without balance_rate. Still applied while use_balance is off
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
  // The rate may be annealed like the learning rate: late in training, parameters can no longer follow changing
  // choices.
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

  // The counts are integers below 2^53: exact in any order. An expert is below the uniform load if E times its count is
  // below the sum of all counts.
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
