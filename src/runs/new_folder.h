// Creates a folder atomically: an imported or adapted run, or an exported model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runs/run_lock.h"

namespace some {

// The folder is written as OUT.writing and renamed when finished: a kill leaves no incomplete folder, and the same
// command can be repeated.
class AtomicFolder {
 public:
  // flag: option named in messages ("--out"). ours: files that an earlier attempt may have left in OUT.writing
  // ("model*": any name with this prefix); nothing else is ever removed.
  AtomicFolder(const std::string& flag, const std::string& out, std::vector<std::string> ours);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& folder() const { return folder_; }  // where to write
  void finish();

 private:
  void check_free() const;
  void check_ours(const std::string& name) const;
  std::string flag_, out_, folder_;
  std::vector<std::string> ours_;
  std::unique_ptr<RunLock> lock_;
  bool done_ = false;
};

}  // namespace some
