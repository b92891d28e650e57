// Lists the run folders of a lab, with recipe and progress of each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"

namespace some {

// Identity of a lab run, in addition to its resolved recipe. Stored in RUN/lab.json; for a folder without one it is
// parsed from the folder's name: RECIPE[@SCALE][-seedN].
struct LabIdentity {
  std::string recipe;    // name of the recipe file, without ending
  double scale = 1;      // factor the recipe was scaled by
  int seed = 0;          // 0: the recipe's own seed, 1: the next one, ...
  bool builtin = false;  // true if built-in text was requested instead of the recipe's
  bool operator==(const LabIdentity&) const = default;
};

std::string run_name(const LabIdentity& identity);  // "a4@0.05-seed1"
LabIdentity parse_run_name(const std::string& name);

enum class RunState { absent, running, interrupted, finished };
RunState run_state(const std::string& folder);
std::string name_of(RunState state);

struct RunListEntry {
  std::string folder;
  std::string name;  // last part of the folder
  LabIdentity identity;
  RunState state = RunState::absent;
  std::string failure;                     // reason for failure, if it failed
  std::optional<std::int64_t> saved_step;  // of its last checkpoint
  bool stored = false;                     // true if the identity was read from lab.json

  // Returns the step that the run has reached: the saved one, since it is what the run resumes from and is used with.
  // A running run is further, at the last step in its metrics.
  std::int64_t step(std::int64_t logged) const {
    return saved_step && state != RunState::running ? *saved_step : std::max(logged, saved_step.value_or(0));
  }
  std::string state_text() const;  // "done", "running", "interrupted", "failed"
};

// Returns the run in a folder; empty if it is not a run.
std::optional<RunListEntry> find_run(const std::string& folder, const Log& log = {});
// Returns every run in a folder, by name; empty if the folder does not exist.
std::vector<RunListEntry> find_runs(const std::string& folder, const Log& log = {});

void write_identity(const std::string& folder, const LabIdentity& identity, const std::string& failure = "");

}  // namespace some
