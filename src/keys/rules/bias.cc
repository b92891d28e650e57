#include "keys/rules/bias.h"

#include "core/error.h"
#include "core/setting.h"
#include "keys/settings.h"

namespace some {

void BiasRule::declare(SettingList<Settings>& list) {
  list.number(
      "balance_rate", &Settings::balance_rate, 0, unlimited,
      "Step of a number an expert that is added to its score for the choice alone, up while the expert has less "
      "than its share of the choices, down while more; 0: none.");
  list.number(
      "balance_slack", &Settings::balance_slack, 0, 1,
      "How far a share may be from an even one before those numbers move, as a part of it; the Gini coefficient "
      "then comes to at most half of this.");
  list.anneal("balance_anneal", &Settings::balance_anneal,
              "Factor on balance_rate over the run, from `start` to `end`; shape \"none\" leaves it as it is.");
  list.boolean("use_balance", &Settings::use_balance, "Whether those numbers move; if not, they stay as they are.");
}

void BiasRule::check(const KeySettings& settings, int) { settings.balance_anneal.check("some.balance_anneal"); }

void BiasRule::missing(double rate) {
  failed(Code::internal, "balance_rate is {}, but this key store was made without numbers to balance by", rate);
}

}  // namespace some
