// Several processes that run one command.
#pragma once

#include <string>

#include "comm/group.h"
#include "core/error.h"

namespace some {

// The ranks that mpirun or srun started (comm/group.h), from the first call on; a group of one otherwise. Only rank 0
// prints results. A command that knows nothing of ranks is refused where there are several (main.cc).
const Group& join_ranks();
void leave_ranks();  // at the end of the program; waits for the others
// The last line of a program that failed, "some: error[code]: message", and with --json the error as one object on
// standard output (docs/json.md); where there are several ranks it ends them all. Returns the exit code.
extern bool errors_as_json;
enum class Whose { this_rank, all_ranks };  // what went wrong
int fail(const Error& error, Whose whose = Whose::this_rank);

}  // namespace some
