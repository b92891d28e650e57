// What work on the CPU is given by whoever asks for it: threads to share it, where its messages go, and the ranks that
// do the same work elsewhere.
#pragma once

#include <memory>

#include "comm/group.h"
#include "core/log.h"
#include "core/threads.h"

namespace some {

// Copies stand for the same threads, log and group.
struct Host {
  std::shared_ptr<Threads> threads = std::make_shared<Threads>();
  Log log;
  Group group;
};
// threads: 0 is as many as there are CPUs for this process; ranks that may use the same ones share them.
inline Host make_host(int threads, Log log = {}, Group group = {}) {
  if (threads == 0 && !group.alone()) threads = group.cpus();
  return {std::make_shared<Threads>(threads), std::move(log), std::move(group)};
}

}  // namespace some
