// How many CPUs this process may use.
#pragma once

#include <string>

namespace some {

// Those it may run on, or fewer where a container's limit (cgroup) gives it the time of fewer. A part of a CPU counts
// as one.
int usable_cpus();
// The limit alone, of the groups named in the file `groups` (/proc/self/cgroup), whose files lie below `mount`
// (/sys/fs/cgroup), version 1 or 2; 0: none.
double cgroup_cpu_limit(const std::string& groups, const std::string& mount);

}  // namespace some
