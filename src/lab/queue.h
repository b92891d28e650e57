// The queue of `some lab run`: a list of runs, done one after another. What is finished is skipped, what was
// interrupted goes on, one that fails does not keep the others from being done, and a signal loses nothing. (Where
// several ranks share a run and one of them alone cannot go on, all ranks end: the same command goes on from there.)
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
  bool builtin = false;                   // built-in stories in place of the recipe's files
  std::string train, valid;               // files in place of the recipe's
  std::optional<std::int64_t> max_steps;  // and a warm-up of no more
  std::vector<std::string> overrides;     // KEY=VALUE, on top of scaling
};

struct PlannedRun {
  LabIdentity identity;
  std::string name, folder;
  Recipe recipe;
  std::vector<std::string> resume_changes;  // the overrides that a resumed run takes (device, threads, precision)
};

// The runs that names of series and recipes stand for, seeds of one recipe together. Wrong names, overrides and scales
// are bad input; so is text that is not there, when no run of the plan has its text.
std::vector<PlannedRun> plan_runs(const SeriesIndex& index, const std::vector<std::string>& names,
                                  const LabOptions& options);

enum class Outcome { already_done, trained, resumed, failed, stopped, not_begun };
std::string name_of(Outcome outcome);

struct QueueEntry {
  std::string name, folder;
  Outcome outcome = Outcome::not_begun;
  std::string message;  // why it failed
  TrainResult result;   // of a run trained, resumed or stopped
  double seconds = 0;
};

struct QueueHooks {
  std::function<void(const PlannedRun&, std::size_t place, bool resumed)> begin;  // place counts from 0
  std::function<void(const QueueEntry&)> end;
  TrainHooks train;
  // Ranks that do the queue's runs: so many neighbours share each run, and the others do other runs at the same time.
  // What is told above is told on the first of those that share the run.
  Group ranks;
  int ranks_per_run = 1;
};

// How many ranks should share each run: as many as were asked for, which must divide the number of ranks and suit every
// run; or, where nothing was asked for, the most that leave no run to wait for another one, as far as their
// micro-batches go. Collective.
int choose_ranks_per_run(const std::vector<PlannedRun>& plan, const Group& ranks, std::optional<int> asked);

// The entries of all runs, on every rank.
std::vector<QueueEntry> run_queue(const std::vector<PlannedRun>& plan, const QueueHooks& hooks);

}  // namespace some
