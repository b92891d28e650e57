// The table of rules. Everything that iterates over rules is generated from it: the settings (keys/settings.h), the
// plan of an update, the state of a key store, and the hooks. The order of the table is the order of spec 4.
#pragma once

#include "keys/rules/attraction.h"
#include "keys/rules/bias.h"
#include "keys/rules/clip.h"
#include "keys/rules/constraint.h"
#include "keys/rules/decay.h"
#include "keys/rules/key_ema.h"
#include "keys/rules/pace.h"
#include "keys/rules/phoenix.h"
#include "keys/rules/pull.h"
#include "keys/rules/usage.h"

namespace some {

template <typename... R>
struct RuleList {
  struct Settings : R::Settings... {
    bool operator==(const Settings&) const = default;
  };
  struct Plans : R::Plan... {
    bool operator==(const Plans&) const = default;
  };
  struct States : R::State... {};
  template <typename T>
  struct Memories : R::template Memory<T>... {};

  // Calls visit.operator()<X>() for every rule X.
  template <typename Visit>
  static void each(Visit&& visit) {
    (visit.template operator()<R>(), ...);
  }

  template <typename K>
  SOME_HD static void count(const K& key) {
    (R::count(key), ...);
  }
  template <typename K>
  SOME_HD static void move(const K& key) {
    (R::move(key), ...);
  }
  SOME_HD static bool surveys(const Plans& plans) { return (R::surveys(plans) || ...); }
  template <typename Layer, typename Lanes>
  SOME_HD static void survey(const Layer& layer, const Lanes& lanes) {
    (R::survey(layer, lanes), ...);
  }
  template <typename K>
  SOME_HD static void finish(const K& key) {
    (R::finish(key), ...);
  }
  template <typename K>
  SOME_HD static void refine(const K& key) {
    (R::refine(key), ...);
  }
  SOME_HD static bool acts_after(const Plans& plans) { return (R::acts_after(plans) || ...); }
  template <typename K>
  SOME_HD static void after(const K& key) {
    (R::after(key), ...);
  }
};

using Rules = RuleList<UsageRule, AttractionRule, PullRule, ClipRule, ConstraintRule, DecayRule, ConstraintLast,
                       KeyEmaRule, PhoenixRule, BiasRule, UpdateScheduleRule>;

// All numbers of one layer's sums and update in one step. The default plan counts every position and does nothing else.
struct KeyPlan : Rules::Plans {
  Needs needs;  // sums to be collected
  bool operator==(const KeyPlan&) const = default;
};

}  // namespace some
