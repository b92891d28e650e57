// Several processes that run one command.
#pragma once

#include <string>

#include "comm/group.h"

namespace some {

// The ranks that mpirun or srun started (comm/group.h), from the first call on; a group of one otherwise. Only rank 0
// prints results. A command that knows nothing of ranks is refused where there are several (main.cc).
const Group& join_ranks();
void leave_ranks();       // at the end of the program; waits for the others
// The last line of a program that failed; where there are several ranks it ends them all. Returns the exit code.
enum class Whose { this_rank, all_ranks };  // what went wrong
int fail(int code, const std::string& line, Whose whose = Whose::this_rank);

}  // namespace some
