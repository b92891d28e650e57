#include "core/system_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>

#include "core/error.h"
#include "core/files/files.h"

namespace some {
namespace {

namespace fs = std::filesystem;

constexpr double no_limit = std::numeric_limits<double>::infinity();

// Returns the number in a file of the kernel; no_limit if the file does not exist or contains "max".
double number_in(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return no_limit;
  try {
    const std::string text = read_file(path.string());
    double value = no_limit;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  } catch (const Error&) {
    return no_limit;
  }
}

// Returns the smallest memory limit of this process's control group and of all groups that contain it. Inside a
// container the kernel may report the path as seen from outside; then the root of the mount holds the limit.
double control_group_limit() {
  double limit =
      std::min(number_in("/sys/fs/cgroup/memory.max"), number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  std::string groups;
  try {
    groups = read_file("/proc/self/cgroup");
  } catch (const Error&) {
    return limit;
  }
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "0::/user.slice/x" or "9:memory:/x"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kind = line.substr(first + 1, second - first - 1);
    if (!kind.empty() && kind.find("memory") == std::string::npos) continue;
    const fs::path root = kind.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* const name = kind.empty() ? "memory.max" : "memory.limit_in_bytes";
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path(); !group.empty();
         group = group.parent_path())
      limit = std::min(limit, number_in(root / group / name));
  }
  return limit;
}

}  // namespace

double memory_limit() {
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  double limit = pages > 0 ? pages * static_cast<double>(sysconf(_SC_PAGE_SIZE)) : no_limit;
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY)
    limit = std::min(limit, static_cast<double>(address_space.rlim_cur));
  return std::min(limit, control_group_limit());
}

}  // namespace some
