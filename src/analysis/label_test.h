// Permutation test of the association between expert assignments and labels: mutual information, purity and affinity,
// compared with the same assignments under shuffled labels.
#pragma once

#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace some {

// A statistic compared with its distribution when the labels are shuffled over the positions.
struct ChanceTest {
  double value = 0;
  double mean = 0, deviation = 0;  // of the shuffles
  double z = 0;                    // (value - mean) / deviation; 0 if the shuffles do not vary
  double p = 1;                    // (1 + shuffles at least as large) / (1 + shuffles)
};
ChanceTest compare_with_chance(double value, const std::vector<double>& shuffled);

// Assignments of experts at positions with one label each (a token, a word class).
struct LabeledAssignments {
  int experts = 0, top_k = 0, labels = 0;
  std::vector<std::int32_t> chosen;  // [positions * top_k]
  std::vector<std::int32_t> label;   // [positions], 0 .. labels-1
  std::vector<std::int32_t>
      type;  // [positions], only for shuffle_types: the token; all positions of one type must have the same label
};

// An expert or a set, and how its rate of one label compares with the base rate.
struct Affinity {
  int unit = -1;           // expert, or index in LabelTest::sets; -1: no unit fired often enough
  std::int64_t count = 0;  // positions it fires at
  double share = 0;        // fraction of these positions that have the label
  double base = 0;         // fraction of all positions that have the label
  double recall = 0;       // fraction of the positions with the label at which it fires
  double z = 0;            // distance from the base rate in standard deviations of random draws
  double p = 1;  // p-value of the largest z over all units in a shuffle, which corrects for selecting the best unit
  double lift() const { return base > 0 ? share / base : 0; }
};

struct LabelTest {
  double expert_entropy = 0;           // entropy of the assignments, in bits
  ChanceTest information;              // mutual information of expert and label, in bits/assignment
  ChanceTest purity;                   // fraction of assignments that have their expert's most frequent label
  std::vector<std::vector<int>> sets;  // sets seen at least min_count times, most frequent first
  std::vector<Affinity> expert_affinity, set_affinity;  // by label: the unit with the highest affinity; only on request
};

struct LabelTestOptions {
  int shuffles = 100;
  std::uint64_t seed = 0;
  std::int64_t min_count = 50;  // units that fire less often are ignored
  bool affinities = false;      // for each label, find the expert and the set with the highest affinity
  // Shuffles labels among tokens of similar frequency instead of among positions. An expert for a single noun exceeds
  // chance by position; only an expert that combines several nouns exceeds chance by type.
  bool shuffle_types = false;
};
LabelTest test_labels(Threads& threads, const LabeledAssignments& choices, const LabelTestOptions& options);

}  // namespace some
