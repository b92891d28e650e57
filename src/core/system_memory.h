// Memory available to this process, so that work that cannot fit is rejected before it starts: on an out-of-memory
// condition the kernel kills some process, not necessarily this one.
#pragma once

namespace some {

// Returns the bytes that this process may use: the memory of the machine, or less if a container (cgroup) or a shell
// limit (ulimit -v) is lower.
double memory_limit();

}  // namespace some
