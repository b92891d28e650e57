// Locks a run folder for one process at a time: two would mix their lines and checkpoints.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace some {

// Thrown if another process is training the folder.
class RunLocked : public Error {
 public:
  explicit RunLocked(const std::string& folder);
};

// True if a process is training the folder now. False on file systems without locks, where this is unknown.
bool run_is_locked(const std::string& folder);

// Creates the folder and locks it during training, so that no other process resumes or restarts the run. The operating
// system releases the lock when the process ends, for whatever reason. Folders created here that stay empty are removed
// again.
class RunLock {
 public:
  explicit RunLock(const std::string& folder);  // throws RunLocked if another process holds it
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::vector<std::string> made_;  // folders that were created, the innermost first
  int file_ = -1;
};

}  // namespace some
