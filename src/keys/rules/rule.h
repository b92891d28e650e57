// Interface of a rule of the key update (spec 4). A rule is a struct X derived from Rule<X>. It has its own files,
// keys/rules/NAME.h and .cc, and one entry in the table of keys/rules/rules.h; nothing else registers it. It declares
//
//   Settings  its members of KeySettings, with their defaults; declare() gives each its name, range and words, and
//             check() rejects invalid values. Recipes, fixtures and messages follow from them.
//   Plan      the numbers of one update of one layer, computed by plan() from the settings and the time. Code on the
//             devices sees only the plan. A CUDA graph of a step is replayed only if every plan is equal
//             (train/step.h), so that a rule cannot receive a stale number.
//   needs()   the sums of a step that it reads; the others are not collected.
//   State     tensors that it keeps between updates; tensors() names them for checkpoints.
//   Memory    pointers to those tensors, and to scratch memory, during an update.
//
// and computes in one or more hooks, called in this order, with the rules in table order. The same code runs on the CPU
// and on the GPU (`lanes`: the threads that share a key), in double precision between tensors of type T:
//
//   count(key)    one lane: per-expert numbers, from the step's counts
//   move(key)     key.row, from the sums of the key's own choices
//   survey(layer) once per layer, over all experts; if surveys(plan)
//   finish(key)   key.row, after all keys have moved and peer pull (keys/rules/pull.h) is done
//   settle(key)   after key.row is stored as the new key, rounded
//   after(key)    after all keys are stored; if acts_after(plan)
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.h"
#include "runtime/context.h"

// On a GPU, keeps the loads of four loop iterations in flight.
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

// Lower bound of a norm that a vector is divided by (spec 3.2).
inline constexpr double kSmallestLength = 1e-12;

// Time of an update.
struct UpdateTime {
  std::uint64_t seed = 0;
  int layer = 0;
  std::int64_t step = 0;    // of the run, from 0
  std::int64_t update = 1;  // index of this update of the layer, from 1: s of spec 4.1
  double progress = 0;      // of the run, from 0 to 1
};

// Sums of a step that are collected only if a rule reads them. Counts, gates and positions always are.
struct Needs {
  bool query_sums = false;  // Q[e,i]
  bool together = false;    // C[e,f]
  bool sample = false;      // queries of randomly sampled positions
  bool operator==(const Needs&) const = default;
};
inline Needs operator|(const Needs& a, const Needs& b) {
  return {a.query_sums || b.query_sums, a.together || b.together, a.sample || b.sample};
}

// On the CPU one lane does all the work of a key.
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

// A key during an update. A lane only touches its own columns of `row`, so no synchronization is needed between two
// hooks.
template <typename Layer, typename Lanes>
struct Key {
  const Layer& layer;  // UpdatedLayer (keys/update.h)
  Lanes lanes;
  double factor;  // applied to every sum of the step (spec 4.2, flux); otherwise 1
  std::int64_t expert;
  double* row;

  SOME_HD double length() const {
    return sqrt(lanes.sum(layer.size, [&](std::int64_t j) { return row[j] * row[j]; }));
  }
  SOME_HD void scale(double by) const {
    lanes.each(layer.size, [&](std::int64_t j) { row[j] *= by; });
  }
};

// Defaults for everything a rule need not declare. (A template, so that empty parts of two rules are different types.)
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

  // For rules that adaptation can switch on separately (`some adapt --rules`): name, description, and the member of
  // Settings that switches it.
  static constexpr const char* name = nullptr;
  static constexpr const char* words = nullptr;
  static constexpr auto switched = nullptr;
  // True if it has no effect under these settings even when switched on.
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
  // Adds missing tensors that the settings require, and drops the rest. keys: [E, size], initial values.
  template <typename Settings, typename State>
  static void make_state(const Settings&, const Tensor& /*keys*/, State&) {}
  // Calls visit(name in checkpoints, tensor) for existing tensors.
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
