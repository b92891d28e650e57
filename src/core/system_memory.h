// How much memory there is, so that what cannot fit is refused before it is tried: a machine that is asked for more
// than it has kills some process, not necessarily this one.
#pragma once

namespace some {

// Bytes this process may hold: the machine's memory, or less where a container (cgroup) or a limit of the shell says
// so.
double memory_limit();

}  // namespace some
