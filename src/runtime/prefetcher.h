// Runs work one step ahead of the work that uses its results, such as the next forward pass while a memory learns from
// the previous one. On a GPU the two run concurrently. Two arenas alternate: the results of a step stay where they are
// while the next step is computed.
#pragma once

#include <array>
#include <memory>

#include "runtime/context.h"

namespace some {

class Prefetcher {
 public:
  explicit Prefetcher(Context& ctx);  // a GPU's, which must outlive it; the first step's results are in its arena
  ~Prefetcher();                      // joins
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // True on a GPU. On the CPU work is synchronous, so prefetching gains nothing.
  static bool possible(const Context& ctx) { return ctx.device.is_cuda(); }

  // The context for work that uses the results of this step; they are in its arena.
  Context& current() const { return *steps_[at_].use; }
  // Lets prefetched work start after all work that the current context has queued so far.
  void fork();
  // Returns the context for prefetched work, and resets its arena; once between fork() and join().
  Context& ahead();
  // Begins the next step: later work waits for the prefetched work, whose results are in the arena of current() now.
  void join();

 private:
  struct Step {
    std::unique_ptr<Context> owned;  // null if the context is the caller's
    Context* use = nullptr;
    std::unique_ptr<Context> make;  // the same arena on the side stream
  };
  std::array<Step, 2> steps_;
  std::size_t at_ = 0;
  bool apart_ = false;  // prefetched work was not joined yet
};

}  // namespace some
