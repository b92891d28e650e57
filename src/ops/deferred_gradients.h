// Deferred weight gradients of dense layers. Each is a GEMM that sums over all tokens and has so few elements that it
// cannot fill a GPU by itself. While a DeferGradients exists, operations on the deferring contexts of its schedule may
// leave such GEMMs for later, so that those of one block of the model share a launch, together with the gradients of
// their biases. Such gradients are complete only after its finish() (those of biases also need that of
// kernels/reduce/deferred_sums.h). Until then, the arguments of linear_backward, dy and x, must neither move nor
// change.
#pragma once

#include "runtime/op.h"
#include "runtime/schedule.h"

namespace some {

SOME_OP(void, defer_gradients, (Context & ctx), (ctx))
// where: on which the gradients are computed, ctx or a forked context of the schedule.
SOME_OP(void, finish_gradients, (Context & ctx, Context& where), (ctx, where))
SOME_OP(void, discard_gradients, (Context & ctx),
        (ctx))  // does not fail: discards deferred gradients and stops deferring

// Defers gradients during its lifetime. If something fails before finish(), deferred gradients are discarded.
class DeferGradients {
 public:
  explicit DeferGradients(const Schedule& schedule) : ctx_(schedule.deferring()) { defer_gradients(ctx_); }
  ~DeferGradients() { discard_gradients(ctx_); }
  DeferGradients(const DeferGradients&) = delete;
  DeferGradients& operator=(const DeferGradients&) = delete;
  void finish() { finish_gradients(ctx_, ctx_); }
  // Computes the gradients on a forked context of the schedule, where those of biases are complete as well. What they
  // read must neither move nor change until the schedule is joined.
  void finish(Context& forked) { finish_gradients(ctx_, forked); }

 private:
  Context& ctx_;
};

}  // namespace some
