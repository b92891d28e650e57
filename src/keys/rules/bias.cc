#include "keys/rules/bias.h"

#include "core/error.h"
#include "core/setting.h"
#include "keys/settings.h"

namespace some {

void BiasRule::declare(SettingList<Settings>& list) {
  list.number("balance_rate", &Settings::balance_rate, 0, unlimited,
              "Step size of the loss-free load-balancing bias, one per expert, which is added to its score for the "
              "top-k choice only and moves against the load; 0 = none.");
  list.number("balance_slack", &Settings::balance_slack, 0, 1,
              "Relative deviation from uniform load within which the bias does not move; the Gini coefficient of the "
              "load then reaches at most half of it.");
  list.anneal("balance_anneal", &Settings::balance_anneal,
              "Schedule of a factor on balance_rate over the run, from `start` to `end`; shape \"none\" = constant.");
  list.boolean("use_balance", &Settings::use_balance,
               "Enables updates of the load-balancing bias; false keeps it as it is.");
}

void BiasRule::check(const KeySettings& settings, int) { settings.balance_anneal.check("some.balance_anneal"); }

void BiasRule::missing(double rate) {
  failed(Code::internal, "balance_rate is {}, but this key store has no load-balancing bias", rate);
}

}  // namespace some
