// Commands that run on several ranks (processes).
#pragma once

#include <string>

#include "comm/group.h"
#include "core/error.h"

namespace some {

// Returns the ranks started by mpirun or srun (comm/group.h), joining them at the first call; a group of one otherwise.
// Only rank 0 prints results. Commands that do not support several ranks are rejected (main.cc).
const Group& join_ranks();
void leave_ranks();  // called at the end of the program; waits for all ranks
// Prints a failing program's last line, "some: error[code]: message", and with --json the error as one object on
// standard output (docs/json.md). Aborts all ranks if there are several. Returns the exit code.
extern bool errors_as_json;
enum class FailureScope { this_rank, all_ranks };  // where the failure occurred
int fail(const Error& error, FailureScope whose = FailureScope::this_rank);

}  // namespace some
