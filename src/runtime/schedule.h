// The schedule of a pass: contexts that differ in when their work runs. Whoever plans a pass has the schedule, and an
// operation runs on the context passed to it, so a call shows where and when. On a GPU small work runs concurrently
// with large work; on the CPU, where work is synchronous, all contexts of a schedule are one. Results do not depend on
// it: each number is computed by one kernel, in one order.
#pragma once

#include <memory>

#include "runtime/context.h"

namespace some {

namespace cuda {
struct DeferredSums;       // kernels/reduce/deferred_sums.h
struct DeferredGradients;  // ops/deferred_gradients.h
}  // namespace cuda

// Work that operations have left for later, when it shares a launch with that of others; null: none so far.
struct Deferred {
  std::shared_ptr<cuda::DeferredSums> sums;
  std::shared_ptr<cuda::DeferredGradients> gradients;
};

class Schedule {
 public:
  explicit Schedule(Context& ctx);  // which must outlive it
  ~Schedule();                      // joins
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // The context of the schedule: work in the order of the calls.
  Context& main() const { return main_; }
  // The same order, but sums and weight gradients may be completed later, while a DeferSums or DeferGradients of this
  // schedule exists.
  Context& deferring() const { return deferring_ ? *deferring_ : main_; }
  // Returns a context whose work starts after all work queued so far, and runs concurrently with the work that is
  // queued on the others from now on. Its scratch memory stays in use until the enclosing scope of the others ends or
  // the arena is reset, which must not happen before the join. While a CUDA graph is captured (tensor/graph.h), the two
  // streams become branches of the graph.
  Context& fork();
  // Makes later work wait for all forked work.
  void join();

 private:
  Context& main_;
  Deferred deferred_;
  std::unique_ptr<Context> deferring_, side_;  // null on the CPU
  bool apart_ = false;                         // forked work was not joined yet
};

}  // namespace some
