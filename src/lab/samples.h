// Text a run writes for a report, and the experts that its tokens went through.
#pragma once

#include <string>
#include <vector>

#include "runs/history.h"
#include "runtime/machine.h"

namespace some {

struct Sample {
  std::string prompt;
  std::string how;   // "the likeliest token each time", "drawn at temperature 0.8, seed 0"
  std::string text;  // prompt and continuation
};

struct TracedToken {
  std::string token;
  std::vector<int> experts;  // best first
  std::vector<double> gates;
};

struct RunSamples {
  std::int64_t step = 0;
  std::vector<Sample> samples;
  int layer = 0;                   // that was traced
  std::vector<TracedToken> trace;  // of the first sample; empty where there are no experts
  std::string skipped;             // why there is nothing
};

// Writes samples with the run's last checkpoint, or takes those of the same checkpoint from RUN/samples.json, where
// they are kept. A run that cannot write (no checkpoint, no causal mask) or is too large for a CPU says so in
// `skipped`.
RunSamples sample_run(const RunHistory& run, const DeviceChoice& device, const Host& host);

}  // namespace some
