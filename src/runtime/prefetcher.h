// Work that is one step ahead of the work that takes in its results, as the next pass through a model is while
// something is learnt from the last one. On a GPU the two run beside each other (runtime/side_stream.h), each in
// scratch memory of its own, which they exchange from step to step.
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

  // On the CPU, where everything is done at once, nothing is to be gained, and none of the following may be called.
  static bool possible(const Context& ctx) { return ctx.device.is_cuda(); }

  void part();                                  // what is put ahead begins after all that the context was given so far
  void put(const std::function<void()>& work);  // once between part() and join(); what was in its memory is gone
  void join();                                  // what the context is given now comes after it, in its memory

 private:
  void exchange();
  Context& ctx_;
  std::unique_ptr<Arena> other_;
  bool exchanged_ = false;  // the context's own is `other_`
};

}  // namespace some
