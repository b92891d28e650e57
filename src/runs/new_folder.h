// A folder that comes to be whole or not at all: a run made by something other than training, or an exported model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runs/run_lock.h"

namespace some {

// It is made under the name OUT.writing and gets its own when it is done: a kill leaves no half of it, and the same
// command can be given again.
class NewFolder {
 public:
  // flag: what a message names ("--out"). ours: what may lie in OUT.writing from an earlier try ("model*": any
  // name that begins so); nothing else there is ever removed.
  NewFolder(const std::string& flag, const std::string& out, std::vector<std::string> ours);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& folder() const { return folder_; }  // where it is written
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
