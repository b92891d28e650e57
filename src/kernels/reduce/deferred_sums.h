// Deferred sums over rows. Gradients that are sums over rows (of biases and norms) are computed in two stages. While a
// DeferSums exists, operations on the deferring contexts of its schedule may leave the second stage for later, so that
// many layers share one launch; such gradients are complete only after its finish().
#pragma once

#include "runtime/op.h"
#include "runtime/schedule.h"

namespace some {

SOME_OP(void, defer_sums, (Context & ctx), (ctx))
SOME_OP(void, finish_sums, (Context & ctx), (ctx))
SOME_OP(void, discard_sums, (Context & ctx), (ctx))  // does not fail: discards deferred sums and stops deferring

// Defers sums during its lifetime. If something fails before finish(), deferred sums are discarded: their result is no
// longer needed, and they must not be mixed with later sums.
class DeferSums {
 public:
  explicit DeferSums(const Schedule& schedule) : ctx_(schedule.deferring()) { defer_sums(ctx_); }
  ~DeferSums() { discard_sums(ctx_); }
  DeferSums(const DeferSums&) = delete;
  DeferSums& operator=(const DeferSums&) = delete;
  void finish() { finish_sums(ctx_); }
  void finish(Context& ctx) { finish_sums(ctx); }  // on a forked context of the schedule

 private:
  Context& ctx_;
};

}  // namespace some
