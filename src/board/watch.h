// Watches all runs below some folders, including new ones, on a separate thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "board/run_log.h"
#include "runs/trash.h"

namespace some {

struct WatchSettings {
  std::vector<std::string> folders;  // folders of runs, or runs; symbolic links are followed only if listed here
  std::chrono::milliseconds pause{250};
  int deepest = 4;  // maximum depth below these folders
  std::size_t max_runs = 2000;
};

struct Discovered;

class Watch {
 public:
  // Reports one change of one run, or `gone`: the run with this id no longer exists.
  using Tell = std::function<void(const nlohmann::json& news)>;
  using Tick = std::function<void()>;  // called after every pass over all runs
  Watch(WatchSettings settings, Tell tell, Tick tick = {});
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::vector<std::shared_ptr<RunLog>> runs() const;          // sorted by place
  std::shared_ptr<RunLog> find(const std::string& id) const;  // null if not found
  std::vector<std::string> memories() const;                  // files, sorted by name
  std::vector<TrashedRun> trash() const;                      // searches all folders; the last deleted run first
  bool is_root(const RunLog& run) const;  // true if the run itself, not a folder above it, is watched
  bool seen_all() const;                  // true after the first complete pass
  void wait_until_seen() const;

 private:
  void look_for_runs();
  void look_into(const std::string& folder, const std::string& place, int depth, Discovered& found) const;
  void work();
  WatchSettings settings_;
  Tell tell_;
  Tick tick_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<RunLog>> runs_;  // by id
  std::vector<std::string> memories_;
  bool stop_ = false, seen_all_ = false;
  std::thread thread_;
};

// Returns the id of a run's folder, which never changes, so that links to it stay valid.
std::string id_of(const std::string& folder);

}  // namespace some
