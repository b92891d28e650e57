// Every run under some folders, those that appear meanwhile too, read by a thread of its own.
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

namespace some {

struct WatchSettings {
  std::vector<std::string> folders;  // of runs, or runs themselves; a link named here is followed, none below it is
  std::chrono::milliseconds pause{250};
  int deepest = 4;  // folders below those named
  std::size_t max_runs = 2000;
};

struct Discovered;

class Watch {
 public:
  // One change of one run, or `gone`: the run with this id is not there any more.
  using Tell = std::function<void(const nlohmann::json& news)>;
  using Tick = std::function<void()>;  // after every look at all runs
  Watch(WatchSettings settings, Tell tell, Tick tick = {});
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::vector<std::shared_ptr<RunLog>> runs() const;          // by place
  std::shared_ptr<RunLog> find(const std::string& id) const;  // null where there is none
  std::vector<std::string> memories() const;                  // files, by name
  bool seen_all() const;                                      // everything was looked at once
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

// The id of a run's folder: stays the same, so that a link to it does.
std::string id_of(const std::string& folder);

}  // namespace some
