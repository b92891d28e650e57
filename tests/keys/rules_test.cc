// Tests the declarations of the rules: every setting is declared, and every declared setting reaches the plan, on which
// the sums and the update depend exclusively.
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "keys/key_store.h"
#include "other_values.h"

namespace some {
namespace {

constexpr int layers = 3;

// Settings under which every rule acts, so that no setting is hidden by another.
KeySettings busy() {
  KeySettings settings;
  settings.alpha_floor = 0.001;
  settings.beta_anneal = {AnnealShape::linear, 1.0, 0.5};
  settings.beta_layer_scale = {1.0, 0.5, 2.0};
  settings.clip_delta = 0.2;
  settings.decay_warmup = 4;
  settings.constraint = Constraint::clamp;
  settings.key_ema = 0.5;
  settings.respawn_threshold = 0.3;
  settings.balance_rate = 0.01;
  settings.balance_slack = 0.25;
  settings.balance_anneal = {AnnealShape::linear, 1.0, 0.5};
  settings.frozen_layers = {1};
  settings.update_every = 4;
  settings.update_fraction = 0.5;
  return settings;
}

// Returns the plans of forty steps for their sums and updates.
std::vector<KeyPlan> all_plans(const KeySettings& settings) {
  std::vector<KeyPlan> plans;
  std::int64_t update = 0;
  for (std::int64_t step = 0; step < 40; ++step) {
    if (!update_due(settings, step)) {
      plans.emplace_back();
      continue;
    }
    ++update;
    for (int layer = 0; layer < layers; ++layer)
      plans.push_back(plan_update(settings, {3, layer, step, update, static_cast<double>(step) / 39}));
  }
  return plans;
}

TEST(Rules, EverySettingReachesThePlan) {
  const std::vector<KeyPlan> plain = all_plans(busy());
  EXPECT_EQ(all_plans(busy()), plain);
  std::set<std::string> names;
  for (const Setting<KeySettings>& setting : key_settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name << " is declared twice";
    EXPECT_FALSE(setting.meaning.empty()) << setting.name;
    const std::vector<SettingValue> others = other_values(setting, setting.get(busy()), layers);
    EXPECT_FALSE(others.empty()) << setting.name;
    for (const SettingValue& value : others) {
      KeySettings changed = busy();
      setting.set(changed, value);
      EXPECT_EQ(setting.get(changed), value) << setting.name;
      EXPECT_FALSE(changed == busy()) << setting.name;
      EXPECT_NE(all_plans(changed), plain) << setting.name << " changes nothing that an update is given";
    }
  }
}

// An undeclared setting could not be set by users. Resetting the declared ones one by one must reset everything.
TEST(Rules, EverySettingIsDeclared) {
  KeySettings changed, plain;
  changed = busy();
  changed.alpha = 0.5, changed.use_alpha = false, changed.beta = 0.5, changed.use_beta = false;
  changed.beta_inertia = BetaInertia::max, changed.usage = Usage::flux, changed.ema_decay = 0.5;
  changed.delta = 0.5, changed.use_delta = false, changed.theta_percentile = 0.5, changed.theta = 0.5;
  changed.constraint_order = ConstraintOrder::last, changed.use_balance = false;
  for (const Setting<KeySettings>& setting : key_settings()) {
    EXPECT_NE(setting.get(changed), setting.get(plain)) << setting.name << " is not changed above";
    setting.set(changed, setting.get(plain));
  }
  EXPECT_TRUE(changed == plain) << "a rule has a setting that it does not declare";
}

// A step can be replayed if nothing changes between steps, and only then.
TEST(Rules, PlansRepeatWhereNothingChanges) {
  const auto plan = [](const KeySettings& settings, std::int64_t step) {
    return plan_update(settings, {3, 1, step, step + 1, static_cast<double>(step) / 1000});
  };
  KeySettings steady;
  EXPECT_EQ(plan(steady, 500), plan(steady, 501));
  EXPECT_EQ(plan(steady, 1), plan(steady, 2));
  EXPECT_NE(plan(steady, 399), plan(steady, 400)) << "decay begins";
  for (const auto change : std::vector<void (*)(KeySettings&)>{[](KeySettings& s) { s.update_fraction = 0.5; },
                                                               [](KeySettings& s) { s.respawn_threshold = 0.5; },
                                                               [](KeySettings& s) {
                                                                 s.beta_anneal = {AnnealShape::linear, 1.0, 0.0};
                                                               },
                                                               [](KeySettings& s) {
                                                                 s.balance_rate = 0.01;
                                                                 s.balance_anneal = {AnnealShape::cosine, 1.0, 0.0};
                                                               }}) {
    KeySettings settings = steady;
    change(settings);
    EXPECT_NE(plan(settings, 500), plan(settings, 501));
  }
}

TEST(Rules, AskOnlyForSumsTheyRead) {
  KeySettings settings;
  EXPECT_EQ(needs_of(settings), (Needs{true, true, false}));
  settings.use_alpha = false;
  EXPECT_EQ(needs_of(settings), (Needs{false, true, false}));
  settings.use_beta = false;
  settings.respawn_threshold = 0.5;
  EXPECT_EQ(needs_of(settings), (Needs{false, false, true}));
  settings.frozen_layers = {2};
  EXPECT_EQ(plan_update(settings, {.layer = 2}).needs, Needs());
  EXPECT_FALSE(plan_update(settings, {.layer = 2}).learns);
}

TEST(Rules, ThoseWithASwitchHaveANameAndWords) {
  KeySettings settings;
  std::vector<std::string> names;
  for (const SwitchedRule& rule : switched_rules(settings)) {
    names.push_back(rule.name);
    EXPECT_FALSE(rule.words.empty());
    *rule.on = false;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"alpha", "beta", "delta", "balance"}));
  EXPECT_FALSE(settings.use_alpha || settings.use_beta || settings.use_delta || settings.use_balance);
}

TEST(Rules, RefuseWhatCannotBe) {
  KeySettings settings = busy();
  EXPECT_NO_THROW(check_key_settings(settings, layers));
  settings.frozen_layers = {layers};
  EXPECT_THROW(check_key_settings(settings, layers), Error);
  settings = busy();
  settings.beta_layer_scale = {1.0};
  EXPECT_THROW(check_key_settings(settings, layers), Error);
  settings = busy();
  settings.respawn_threshold = 1.5;
  EXPECT_THROW(check_key_settings(settings, layers), Error);
}

}  // namespace
}  // namespace some
