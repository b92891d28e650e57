// Host resources that a caller passes to CPU work: threads, the log, and the group of ranks.
#pragma once

#include <memory>

#include "comm/group.h"
#include "core/log.h"
#include "core/threads.h"

namespace some {

// Copies share the threads, the log and the group.
struct Host {
  std::shared_ptr<Threads> threads = std::make_shared<Threads>();
  Log log;
  Group group;
};
// Returns a Host. threads = 0: all CPUs available to this process, shared equally among ranks that use the same ones.
inline Host make_host(int threads, Log log = {}, Group group = {}) {
  if (threads == 0 && !group.alone()) threads = group.cpus();
  return {std::make_shared<Threads>(threads), std::move(log), std::move(group)};
}

}  // namespace some
