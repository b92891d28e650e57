// What a rule of the key update is (spec 4). A rule is a struct X derived from Rule<X>; it stands in files of its own,
// keys/rule_NAME.h and .cc, and in the table of keys/rules/rules.h, and nowhere else. It declares
//
//   Settings  its members of KeySettings, with their defaults; declare() gives each its name, range and words, and
//             check() refuses what cannot be. Recipes, fixtures and messages follow.
//   Plan      the numbers of one update of one layer. plan() makes them of the settings and the time; what runs on
//             either device sees the plan and never the settings or the time. A recorded step is played again only
//             where every plan is equal (train/step.h), so that a rule cannot be given a stale number.
//   needs()   which sums of a step it reads, so that others are not collected.
//   State     tensors it keeps from update to update; tensors() names them for checkpoints.
//   Memory    where a running update finds those tensors, and scratch memory.
//
// and computes in one or more hooks, in this order, rules in the order of the table. The same code runs on the CPU and
// on the GPU (`lanes`: the threads that share a key), in double precision between tensors of type T:
//
//   count(key)    one lane: numbers of an expert, from the step's counts
//   move(key)     key.row, from the sums of the key's own choices
//   survey(layer) once a layer, about all experts; where surveys(plan)
//   finish(key)   key.row, when all keys have moved and what they do to one another (keys/rules/pull.h) is done
//   settle(key)   when key.row is stored as the new key, rounded
//   after(key)    when all keys are stored; where acts_after(plan)
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.h"
#include "runtime/context.h"

// On a GPU, keeps the loads of four iterations of a loop in flight.
#if defined(__CUDA_ARCH__)
#define SOME_UNROLL_4 _Pragma("unroll 4")
#else
#define SOME_UNROLL_4
#endif

namespace some {
template <typename Owner>
class SettingList;  // core/setting.h
}

namespace some {

struct KeySettings;  // keys/settings.h

// Below this a vector is not made longer (spec 3.2).
inline constexpr double kSmallestLength = 1e-12;

// When an update happens.
struct UpdateTime {
  std::uint64_t seed = 0;
  int layer = 0;
  std::int64_t step = 0;    // of the run, from 0
  std::int64_t update = 1;  // which of the layer's updates this is, from 1: s of spec 4.1
  double progress = 0;      // of the run, from 0 to 1
};

// Sums of a step that are collected only for rules that read them. Counts, gates and positions always are.
struct Needs {
  bool query_sums = false;  // Q[e,i]
  bool together = false;    // C[e,f]
  bool sample = false;      // queries of positions drawn at random
  bool operator==(const Needs&) const = default;
};
inline Needs operator|(const Needs& a, const Needs& b) {
  return {a.query_sums || b.query_sums, a.together || b.together, a.sample || b.sample};
}

// The CPU: one lane does all of a key.
struct OneLane {
  static constexpr bool serial = true;
  SOME_HD bool first() const { return true; }
  template <typename Body>
  SOME_HD void each(std::int64_t count, Body&& body) const {
    for (std::int64_t i = 0; i < count; ++i) body(i);
  }
  template <typename Term>
  SOME_HD double sum(std::int64_t count, Term&& term) const {
    double total = 0.0;
    for (std::int64_t i = 0; i < count; ++i) total += term(i);
    return total;
  }
  template <typename Test>
  SOME_HD std::int64_t count(std::int64_t count, Test&& test) const {
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < count; ++i) total += test(i) ? 1 : 0;
    return total;
  }
};

// A key in the middle of an update. A lane only ever touches its own columns of `row`, so that nothing waits between
// two hooks.
template <typename Layer, typename Lanes>
struct Key {
  const Layer& layer;  // UpdatedLayer (keys/update.h)
  Lanes lanes;
  double factor;  // on every sum of the step (spec 4.2, flux); otherwise 1
  std::int64_t expert;
  double* row;

  SOME_HD double length() const {
    return sqrt(lanes.sum(layer.size, [&](std::int64_t j) { return row[j] * row[j]; }));
  }
  SOME_HD void scale(double by) const {
    lanes.each(layer.size, [&](std::int64_t j) { row[j] *= by; });
  }
};

// What a rule need not declare itself. (A template, so that the empty parts of two rules are two types.)
template <typename Self>
struct Rule {
  struct Settings {
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    bool operator==(const Plan&) const = default;
  };
  struct State {};
  template <typename T>
  struct Memory {};

  // A rule that adaptation can name and switch on by itself (`some adapt --rules`): its name, what it does, and the
  // member of its Settings that switches it.
  static constexpr const char* name = nullptr;
  static constexpr const char* words = nullptr;
  static constexpr auto switched = nullptr;
  // Whether it has no effect under these settings even where it is switched on.
  template <typename Settings>
  static bool idle(const Settings&) {
    return false;
  }

  template <typename List>
  static void declare(List&) {}
  static void check(const KeySettings&, int /*layers*/) {}
  template <typename Settings>
  static auto plan(const Settings&, const UpdateTime&) {
    return typename Self::Plan();
  }
  template <typename Settings>
  static Needs needs(const Settings&) {
    return {};
  }
  // Adds to the state what the settings ask for and it lacks, and drops the rest. keys: [E, size], to start from.
  template <typename Settings, typename State>
  static void make_state(const Settings&, const Tensor& /*keys*/, State&) {}
  // Calls visit(name in checkpoints, tensor) for what there is.
  template <typename State, typename Visit>
  static void tensors(State&, Visit&&) {}
  template <typename T, typename State, typename Plan>
  static auto memory(Context&, const State&, const Plan&, std::int64_t /*experts*/) {
    return typename Self::template Memory<T>();
  }

  template <typename K>
  SOME_HD static void count(const K&) {}
  template <typename K>
  SOME_HD static void move(const K&) {}
  template <typename Plan>
  SOME_HD static bool surveys(const Plan&) {
    return false;
  }
  template <typename Layer, typename Lanes>
  SOME_HD static void survey(const Layer&, const Lanes&) {}
  template <typename K>
  SOME_HD static void finish(const K&) {}
  template <typename K>
  SOME_HD static void refine(const K&) {}
  template <typename Plan>
  SOME_HD static bool acts_after(const Plan&) {
    return false;
  }
  template <typename K>
  SOME_HD static void after(const K&) {}
};

}  // namespace some
