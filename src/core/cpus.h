// Number of CPUs that this process may use.
#pragma once

#include <string>

namespace some {

// Returns the number of CPUs in the affinity mask, or fewer if a container (cgroup) limits the CPU time. A fraction of
// a CPU counts as one CPU.
int usable_cpus();
// Returns only the cgroup limit, for the groups listed in the file `groups` (/proc/self/cgroup) with their files below
// `mount` (/sys/fs/cgroup). Both cgroup versions are read. 0 = no limit.
double cgroup_cpu_limit(const std::string& groups, const std::string& mount);

}  // namespace some
