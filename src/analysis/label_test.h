// Whether choices go with labels more than chance would have it: mutual information, purity and affinity of labelled
// choices, against the same choices with their labels shuffled.
#pragma once

#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace some {

// A statistic beside what the same choices give when the labels are shuffled over the positions.
struct AgainstChance {
  double value = 0;
  double mean = 0, deviation = 0;  // of the shuffles
  double z = 0;                    // (value - mean) / deviation; 0 where the shuffles do not vary
  double p = 1;                    // (1 + shuffles at least as large) / (1 + shuffles)
};
AgainstChance against_chance(double value, const std::vector<double>& shuffled);

// Choices of experts at positions that carry one label each (a token, a word class).
struct LabelledChoices {
  int experts = 0, top_k = 0, labels = 0;
  std::vector<std::int32_t> chosen;  // [positions * top_k]
  std::vector<std::int32_t> label;   // [positions], 0 .. labels-1
  std::vector<std::int32_t>
      type;  // [positions], for shuffle_types alone: the token; positions of one type must have one label
};

// An expert or a set, and how much more often than its base rate it meets one label.
struct Affinity {
  int unit = -1;           // expert, or number in LabelTest::sets; -1: none was seen often enough
  std::int64_t count = 0;  // positions it fires at
  double share = 0;        // of these with the label
  double base = 0;         // of all positions with the label
  double recall = 0;       // of the positions with the label, how many it fires at
  double z = 0;            // distance from the base rate in deviations of a draw by chance
  double p = 1;  // of the largest z among all units in a shuffle being this large: picking the best unit is allowed for
  double lift() const { return base > 0 ? share / base : 0; }
};

struct LabelTest {
  double expert_entropy = 0;           // bits of the choice itself
  AgainstChance information;           // mutual information of expert and label, bits a choice
  AgainstChance purity;                // share of the choices that fall on their expert's most frequent label
  std::vector<std::vector<int>> sets;  // the sets seen at least min_count times, most frequent first
  std::vector<Affinity> expert_affinity, set_affinity;  // by label: the unit most given to it; only when asked for
};

struct LabelTestOptions {
  int shuffles = 100;
  std::uint64_t seed = 0;
  std::int64_t min_count = 50;  // a unit that fires more rarely is not judged
  bool affinities = false;      // per label: the most given expert and set
  // Chance deals the labels out among tokens of similar frequency instead of among positions. An expert for a single
  // noun is more than chance by position; only an expert that brings nouns together is more than chance by type.
  bool shuffle_types = false;
};
LabelTest test_labels(Threads& threads, const LabelledChoices& choices, const LabelTestOptions& options);

}  // namespace some
