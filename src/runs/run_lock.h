// One process at a time writes into a run folder: two would mix their lines and checkpoints.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace some {

// Another process is training the folder.
class RunTaken : public Error {
 public:
  explicit RunTaken(const std::string& folder);
};

// Whether a process is training the folder now. Where the file system knows no locks it cannot be told: false.
bool run_is_taken(const std::string& folder);

// Makes the folder and holds it while a run is trained, so that no other process resumes or restarts what this one is
// at. The system lets go of it when the process ends, however it ends. Folders made here in which nothing was written
// are taken away again.
class RunLock {
 public:
  explicit RunLock(const std::string& folder);  // RunTaken when another process holds it
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::vector<std::string> made_;  // the folder and those above it that were not there, the innermost first
  int file_ = -1;
};

}  // namespace some
