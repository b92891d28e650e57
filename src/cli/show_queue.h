// Trains the runs of a plan and shows their progress, for `some lab run` and `some sweep`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "comm/group.h"
#include "lab/queue.h"

namespace some {

// Returns one entry per run, in the order of the plan. A signal stops the queue after a step, with a checkpoint.
std::vector<QueueEntry> show_queue(const std::vector<PlannedRun>& plan, const Group& group = {}, int ranks_per_run = 1);
nlohmann::json to_json(const QueueEntry& entry);
std::int64_t count_failures(const std::vector<QueueEntry>& entries);
// Reports failed runs, and runs that a signal stopped; sets the exit code.
void report_unfinished(const std::vector<QueueEntry>& entries, int signal);

}  // namespace some
