// The run folders of a lab: which run of which recipe each is, and how far it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"

namespace some {

// What a lab run is, beside its resolved recipe. Kept in RUN/lab.json; for a folder without one it is read from the
// folder's name: RECIPE[@SCALE][-seedN].
struct LabIdentity {
  std::string recipe;    // name of the recipe file, without ending
  double scale = 1;      // what the recipe was shrunk by
  int seed = 0;          // 0: the recipe's own seed, 1: the next one, ...
  bool builtin = false;  // built-in text was asked for in place of the recipe's
  bool operator==(const LabIdentity&) const = default;
};

std::string run_name(const LabIdentity& identity);  // "a4@0.05-seed1"
LabIdentity identity_of_name(const std::string& name);

enum class RunState { absent, running, interrupted, finished };
RunState run_state(const std::string& folder);
std::string name_of(RunState state);

struct FoundRun {
  std::string folder;
  std::string name;  // last part of the folder
  LabIdentity identity;
  RunState state = RunState::absent;
  std::string failure;  // why it broke off, where it did
  bool stored = false;  // the identity comes from lab.json

  std::string state_text() const;  // "done", "running", "interrupted", "failed"
};

// A folder that holds a run; nothing when it does not.
std::optional<FoundRun> find_run(const std::string& folder, const Log& log = {});
// Every run in a folder of runs, by name; empty when there is no such folder.
std::vector<FoundRun> find_runs(const std::string& folder, const Log& log = {});

void write_identity(const std::string& folder, const LabIdentity& identity, const std::string& failure = "");

}  // namespace some
