#include "runs/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/files/folders.h"
#include "core/system_error.h"

namespace some {
namespace fs = std::filesystem;
RunLocked::RunLocked(const std::string& folder)
    : Error(Fault::input, Code::run_locked,
            fmt::format("another process is training {}; wait for it, or use another folder", folder), {folder}) {}

bool run_is_locked(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  const bool taken = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return taken;
}

RunLock::RunLock(const std::string& folder) {
  for (fs::path path = folder; !path.empty() && !exists_path(path.string()); path = path.parent_path())
    made_.push_back(path.string());
  make_folder(folder);
  file_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file_ < 0) failed(Code::folder_unreadable, "cannot open {}: {}", folder, last_reason());
  bool held = false, taken = true;
  // run_is_locked in another process holds the lock for a moment, so a few attempts are made.
  for (int attempt = 0; attempt < 20 && taken && !held; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    held = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
    taken = !held && errno == EWOULDBLOCK;
  }
  if (!held) {
    ::close(file_);
    // Some network file systems have no locks; there the user must take care.
    file_ = -1;
    if (taken) throw RunLocked(folder);
  }
}

RunLock::~RunLock() {
  std::error_code ignored;
  for (const std::string& folder : made_) fs::remove(folder, ignored);  // fails silently if the folder is not empty
  if (file_ >= 0) ::close(file_);
}

}  // namespace some
