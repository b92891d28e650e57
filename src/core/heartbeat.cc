#include "core/heartbeat.h"

#include <atomic>

namespace some {
namespace {
std::atomic<std::int64_t> signs{0};
std::atomic<int> excuses{0};
}  // namespace

void beat() { signs.fetch_add(1, std::memory_order_relaxed); }
std::int64_t heartbeats() { return signs.load(std::memory_order_relaxed); }

Excused::Excused() { excuses.fetch_add(1); }
Excused::~Excused() {
  beat();
  excuses.fetch_sub(1);
}
bool excused() { return excuses.load() > 0; }

}  // namespace some
