#include "core/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace some {
namespace {
namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Returns the number of CPUs that the time limit of one group amounts to; 0 = no limit.
double cgroup_limit(const fs::path& group) {
  double quota = 0, period = 0;
  if (std::istringstream(text_of(group / "cpu.max")) >> quota >> period) return period > 0 ? quota / period : 0;
  if (std::istringstream(text_of(group / "cpu.cfs_quota_us")) >> quota &&
      std::istringstream(text_of(group / "cpu.cfs_period_us")) >> period)
    return quota > 0 && period > 0 ? quota / period : 0;
  return 0;
}

double smaller(double limit, double other) { return limit > 0 && other > 0 ? std::min(limit, other) : limit + other; }

// Returns the smallest limit of a group and of all groups that contain it. Inside a container the containing groups are
// often not visible, and the root of the mount is the container's own group.
double nested_cgroup_limit(const fs::path& top, const std::string& path) {
  fs::path group = top;
  double limit = cgroup_limit(group);
  for (const fs::path& name : fs::path(path).relative_path()) {
    group /= name;
    limit = smaller(limit, cgroup_limit(group));
  }
  return limit;
}

}  // namespace

double cgroup_cpu_limit(const std::string& groups, const std::string& mount) {
  double limit = 0;
  std::istringstream lines(text_of(groups));
  for (std::string line; std::getline(lines, line);) {
    // A line is number:controllers:path. Version 2 names no controllers and is mounted at the root; version 1 has one
    // folder per set of controllers mounted together, and usually a link for each controller.
    const std::size_t first = line.find(':'), second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      limit = smaller(limit, nested_cgroup_limit(mount, path));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      limit = smaller(limit, nested_cgroup_limit(fs::path(mount) / controllers, path));
      limit = smaller(limit, nested_cgroup_limit(fs::path(mount) / "cpu", path));
    }
  }
  return limit;
}

int usable_cpus() {
  int allowed = 0;
  // The call fails if the machine has more CPUs than the set has bits, so the set grows until it succeeds.
  for (std::size_t room = CPU_SETSIZE; allowed == 0 && room <= (std::size_t{1} << 20); room *= 2) {
    std::vector<cpu_set_t> set(room / CPU_SETSIZE);
    const std::size_t bytes = set.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) == 0) allowed = CPU_COUNT_S(bytes, set.data());
  }
  if (allowed == 0) allowed = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const double limit = cgroup_cpu_limit("/proc/self/cgroup", "/sys/fs/cgroup");
  return limit > 0 ? std::clamp(static_cast<int>(std::ceil(limit)), 1, allowed) : allowed;
}

}  // namespace some
