// Sweeps: one recipe with every combination of some values of its settings, each with several seeds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/queue.h"

namespace some {

struct SweepAxis {
  std::string setting;              // full name
  std::vector<std::string> values;  // as on the command line
};
// Parses "train.lr=0.001,0.003". Commas inside brackets, braces and quotes do not separate values.
SweepAxis parse_axis(const std::string& text);

struct SweepOptions {
  std::string recipe;  // file
  std::string folder;  // of the run folders
  std::vector<SweepAxis> axes;
  std::vector<std::string> overrides;  // of all runs
  int seeds = 1;
};

// A combination of values, with the places of its runs in the plan, one per seed.
struct SweepPoint {
  std::vector<std::string> values;  // one per axis
  std::vector<std::size_t> runs;
};
struct Sweep {
  std::vector<SweepAxis> axes;
  std::vector<SweepPoint> points;
  std::vector<PlannedRun> plan;
};
// Throws (bad_input) if a combination is not a valid recipe, before anything is trained.
Sweep plan_sweep(const SweepOptions& options);

struct SweepResult {
  std::vector<double> losses, bits_per_byte;  // of the last evaluation of each finished run
  double loss = 0, deviation = 0;             // mean and sample standard deviation; 0 for a single run
};
struct SweepReport {
  std::vector<SweepResult> results;  // by point
  std::optional<std::size_t> best;   // point with the lowest mean loss among those with the most finished runs
  std::optional<std::size_t> next;   // the second of these
  double chance = 0;                 // median deviation between seeds; 0 if unknown
  // True if the best is not distinguishable from the next: they differ by at most twice the deviation between seeds.
  bool within_chance() const;
};
SweepReport read_sweep(const Sweep& sweep, const Log& log = {});

nlohmann::json to_json(const Sweep& sweep, const SweepReport& report);

}  // namespace some
