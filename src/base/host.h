// What work on the CPU is given by whoever asks for it: threads to share it, and where its messages go.
#pragma once

#include <memory>

#include "base/log.h"
#include "base/threads.h"

namespace some {

// Copies stand for the same threads and the same log.
struct Host {
  std::shared_ptr<Threads> threads = std::make_shared<Threads>();
  Log log;
};
inline Host make_host(int threads, Log log = {}) { return {std::make_shared<Threads>(threads), std::move(log)}; }

}  // namespace some
