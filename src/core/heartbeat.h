// Heartbeat of this process. Ranks wait for each other, so a rank whose main thread hangs would block all of them.
// Working threads therefore call beat(), and a watchdog ends all ranks if one does not for too long
// (comm/group_open.cc). A rank is a process, so there is one global counter.
#pragma once

#include <cstdint>

namespace some {

// Records progress. Called by thread pools (core/threads.h), by code that waits for another rank, and by long
// computations that do neither. May be called from any thread; the cost is negligible.
void beat();
std::int64_t heartbeat_count();  // number of beats so far

// While an object of this class exists, the watchdog ignores a missing heartbeat (for example during slow disk I/O).
class WatchdogPause {
 public:
  WatchdogPause();
  ~WatchdogPause();
  WatchdogPause(const WatchdogPause&) = delete;
  WatchdogPause& operator=(const WatchdogPause&) = delete;
};
bool watchdog_paused();

}  // namespace some
