// What a claim comes to, number by number, held against the runs that are there.
#pragma once

#include <string>
#include <vector>

#include "lab/groups.h"
#include "lab/texts.h"

namespace some {

enum class Verdict { unknown, holds, open, fails };

// One part of a claim: a value for every seed of its run. Runs of one seed are held against each other; where the other
// side lacks the seed, its mean stands in.
struct PartResult {
  std::vector<double> values;
  std::size_t met = 0;  // of them, those that are within the bounds
  int fewest = 0;       // seeds of any run that it was worked out from

  // As claimed where every seed is, not so where none is.
  Verdict verdict() const;
  bool once() const { return values.size() == 1; }
};

// Without values where a run is not there or does not have the number.
PartResult evaluate_part(const ClaimPart& part, const std::vector<const RunGroup*>& groups);

// "loss of knob-lora against study-experts-32-k4", "below -0.05", "-0.1160 (-0.1380 to -0.1010)", "in 2 of 3 seeds"
std::string measured_words(const ClaimPart& part);
std::string wanted_words(const ClaimPart& part);
std::string value_words(const ClaimPart& part, const PartResult& result);
std::string verdict_words(const PartResult& result);

}  // namespace some
