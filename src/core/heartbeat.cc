#include "core/heartbeat.h"

#include <atomic>

namespace some {
namespace {
std::atomic<std::int64_t> signs{0};
std::atomic<int> pauses{0};
}  // namespace

void beat() { signs.fetch_add(1, std::memory_order_relaxed); }
std::int64_t heartbeat_count() { return signs.load(std::memory_order_relaxed); }

WatchdogPause::WatchdogPause() { pauses.fetch_add(1); }
WatchdogPause::~WatchdogPause() {
  beat();
  pauses.fetch_sub(1);
}
bool watchdog_paused() { return pauses.load() > 0; }

}  // namespace some
