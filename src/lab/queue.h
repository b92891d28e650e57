// The queue of `some lab run`: processes a list of runs one after another. Finished runs are skipped, interrupted runs
// are resumed, a failing run does not stop the rest, and a signal loses no work. (If several ranks share a run and only
// one of them fails, all ranks end; the same command resumes from there.)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/series.h"
#include "runs/run_list.h"
#include "train/trainer.h"

namespace some {

struct LabOptions {
  std::string runs = "lab";  // folder of the run folders
  int seeds = 1;
  double scale = 1;
  bool builtin = false;                   // built-in documents instead of the recipe's files
  std::string train, valid;               // files instead of the recipe's
  std::optional<std::int64_t> max_steps;  // also caps the warm-up
  std::vector<std::string> overrides;     // KEY=VALUE, applied after scaling
};

struct PlannedRun {
  LabIdentity identity;
  std::string name, folder;
  Recipe recipe;
  std::vector<std::string> resume_changes;  // overrides applied when resuming (device, threads, precision)
};

// Returns the runs for names of series and recipes, with the seeds of one recipe next to each other. Throws (bad_input)
// for invalid names, overrides and scales, and if the text of every run of the plan is missing.
std::vector<PlannedRun> plan_runs(const SeriesIndex& index, const std::vector<std::string>& names,
                                  const LabOptions& options);

enum class Outcome { already_done, trained, resumed, failed, stopped, not_begun };
std::string name_of(Outcome outcome);

struct QueueEntry {
  std::string name, folder;
  Outcome outcome = Outcome::not_begun;
  std::string message;       // reason of a failure
  std::optional<Code> code;  // of the failure
  TrainResult result;        // for runs that were trained, resumed or stopped
  double seconds = 0;
};

struct QueueHooks {
  std::function<void(const PlannedRun&, std::size_t place, bool resumed)> begin;  // place: index in the plan, from 0
  std::function<void(const QueueEntry&)> end;
  TrainHooks train;
  // Ranks that process the queue: ranks_per_run neighboring ranks share each run, and different groups process
  // different runs concurrently. The hooks above are called on the first rank of the group that shares the run.
  Group ranks;
  int ranks_per_run = 1;
};

// Chooses the number of ranks per run. `asked` must divide the number of ranks and suit every run. Without it, the
// result is the largest number at which no run has to wait for another one and which suits the micro-batches of every
// run. Collective.
int choose_ranks_per_run(const std::vector<PlannedRun>& plan, const Group& ranks, std::optional<int> asked);

// Processes the queue. Returns the entries of all runs, on every rank.
std::vector<QueueEntry> run_queue(const std::vector<PlannedRun>& plan, const QueueHooks& hooks);

}  // namespace some
