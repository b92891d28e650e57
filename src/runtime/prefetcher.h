// Runs work one step ahead of the work that uses its results, such as the next forward pass while the previous one is
// learned from. On a GPU the two run concurrently (runtime/side_stream.h), each with its own scratch arena; the two
// arenas are swapped from step to step.
#pragma once

#include <functional>
#include <memory>

#include "runtime/context.h"

namespace some {

class Prefetcher {
 public:
  explicit Prefetcher(Context& ctx);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // True on a GPU. On the CPU work is synchronous, so prefetching gains nothing and the functions below must not be
  // called.
  static bool possible(const Context& ctx) { return ctx.device.is_cuda(); }

  void part();  // forks: prefetched work starts after all work the context has queued so far
  // Queues the prefetched work; once between part() and join(). Resets its arena.
  void put(const std::function<void()>& work);
  void join();  // later work of the context waits for the prefetched work and uses its arena

 private:
  void exchange();
  Context& ctx_;
  std::unique_ptr<Arena> other_;
  bool exchanged_ = false;  // `other_` is the context's original arena
};

}  // namespace some
