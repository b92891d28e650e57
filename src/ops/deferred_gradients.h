// The gradients of dense layers' matrices are products that sum over all tokens and have so few elements that one alone
// does not fill a GPU. While a DeferGradients exists, they may be put off, so that those of one block of the model
// share a launch, together with the gradients of their biases. Such gradients are complete only after its finish()
// (those of biases also need that of kernels/reduce/deferred_sums.h). Until then, what linear_backward was given, dy
// and x, must neither move nor change.
#pragma once

#include "runtime/op.h"

namespace some {

SOME_OP(void, defer_gradients, (Context & ctx), (ctx))
SOME_OP(void, finish_gradients, (Context & ctx), (ctx))
SOME_OP(void, drop_gradients, (Context & ctx), (ctx))  // does not fail: nothing waits and nothing is held any more

// If something fails before finish(), what was put off is dropped.
class DeferGradients {
 public:
  explicit DeferGradients(Context& ctx) : ctx_(ctx) { defer_gradients(ctx_); }
  ~DeferGradients() { drop_gradients(ctx_); }
  DeferGradients(const DeferGradients&) = delete;
  DeferGradients& operator=(const DeferGradients&) = delete;
  void finish() { finish_gradients(ctx_); }

 private:
  Context& ctx_;
};

}  // namespace some
