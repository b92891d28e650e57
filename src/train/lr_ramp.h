// A learning-rate range test (Smith, 2017): trains a fresh model while the learning rate rises exponentially, and finds
// where the loss falls fastest. Writes nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"
#include "runtime/host.h"
#include "train/stage.h"

namespace some {

struct LrRampOptions {
  double low = 1e-5, high = 1;
  int steps = 100;
  std::string cache;  // of tokens (prepare_stages); empty: none
  DataProgress prepare;
  std::function<void(int step, int steps)> progress;
  std::function<bool()> stop;  // true: the ramp ends early
};

struct LrRampPoint {
  double lr = 0, loss = 0;
  double smoothed = 0;  // exponential moving average of the losses up to here, corrected for its start
};

struct LrRamp {
  std::vector<LrRampPoint> points;
  std::optional<std::size_t> steepest;  // where the smoothed loss falls fastest in log(lr), before its minimum
  std::size_t lowest = 0;               // the lowest smoothed loss
  bool diverged = false;                // the ramp ended because the loss rose or was not finite
  // The suggested learning rate: that of the steepest descent, but at most a third of that of the lowest loss, beyond
  // which training becomes unstable. Empty if the loss does not fall.
  std::optional<double> suggestion;
};

// Returns the rate of step i: low * (high / low)^(i / (steps - 1)).
double ramp_rate(const LrRampOptions& options, int step);
// Evaluates the measured losses: smoothing and suggestion.
void judge_ramp(LrRamp& ramp);
// Uses the first stage of the recipe. Every other setting of the recipe applies, except the schedule. Throws bad_input
// if the recipe, the text or an option is invalid.
LrRamp find_lr(const Recipe& recipe, const Log& log, const LrRampOptions& options);

}  // namespace some
