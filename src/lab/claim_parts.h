// Evaluation of the parts of a claim on the available runs.
#pragma once

#include <string>
#include <vector>

#include "lab/groups.h"
#include "lab/texts.h"

namespace some {

enum class Verdict { unknown, holds, open, fails };

// One part of a claim: one value per seed of its run. Runs with the same seed are compared; if the other side does not
// have the seed, its mean is used.
struct PartResult {
  std::vector<double> values;
  std::size_t met = 0;  // number of values within the bounds
  int fewest = 0;       // smallest number of seeds among the runs involved

  // Returns `holds` if every seed is within the bounds, `fails` if none is.
  Verdict verdict() const;
  bool once() const { return values.size() == 1; }
};

// Evaluates one part; without values if a run is missing or does not have the number.
PartResult evaluate_part(const ClaimPart& part, const std::vector<const RunGroup*>& groups);

// Texts for tables: "loss of knob-lora against study-experts-32-k4", "below -0.05", "-0.1160 (-0.1380 to -0.1010)", "in
// 2 of 3 seeds"
std::string describe_measure(const ClaimPart& part);
std::string describe_bounds(const ClaimPart& part);
std::string format_values(const ClaimPart& part, const PartResult& result);
std::string describe_verdict(const PartResult& result);

}  // namespace some
