// Peer pull between keys of experts chosen together (spec 4.4): beta. The only rule in which keys affect each other: it
// reads all keys as they are after their own movement, and is implemented separately for each device
// (keys/rules/pull_cpu.h, keys/rules/pull.cuh).
#pragma once

#include <vector>

#include "core/anneal.h"
#include "keys/rules/rule.h"

namespace some {

enum class BetaInertia { min, max };

struct PullRule : Rule<PullRule> {
  struct Settings {
    double beta = 0.005;
    bool use_beta = true;
    BetaInertia beta_inertia = BetaInertia::min;
    Anneal beta_anneal;
    std::vector<double> beta_layer_scale;  // one factor per layer (study D1); empty: 1 everywhere
    bool operator==(const Settings&) const = default;
  };
  struct Plan {
    double beta = 0;  // for this layer and step; 0: no pull
    BetaInertia inertia = BetaInertia::min;
    bool operator==(const Plan&) const = default;

    SOME_HD bool acts() const { return beta != 0.0; }
    // Returns the weight of a pair of experts chosen together `count` times, with these usages.
    SOME_HD double weight(double factor, std::int32_t count, double usage, double other) const {
      const double mine = 1.0 + usage, theirs = 1.0 + other;
      return factor * count * beta / (inertia == BetaInertia::min ? fmin(mine, theirs) : fmax(mine, theirs));
    }
  };
  static constexpr const char* name = "beta";
  static constexpr const char* words = "pull between experts chosen together";
  static constexpr auto switched = &Settings::use_beta;

  static void declare(SettingList<Settings>& list);
  static void check(const KeySettings& settings, int layers);
  static Needs needs(const Settings& settings) { return {.together = settings.use_beta}; }
  static Plan plan(const Settings& settings, const UpdateTime& time);
};

}  // namespace some
