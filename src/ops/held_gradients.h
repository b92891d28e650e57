// The gradients of dense layers' matrices are products that sum over all tokens: few numbers each, so that one alone
// does not fill a GPU. While a GradientsHeld lives they may wait, so that those of one block of the model, with the
// gradients of their biases, are one launch: such gradients are complete only after its finish() (the biases' after
// that of ops/held_sums.h too), and until then what linear_backward was given, dy and x, must stay where it is and as
// it is.
#pragma once

#include "base/rooms.h"
#include "ops/op.h"

namespace some::ops {

SOME_OP(void, hold_gradients, (Context & ctx), (ctx))
SOME_OP(void, finish_gradients, (Context & ctx), (ctx))
SOME_OP(void, drop_gradients, (Context & ctx), (ctx))  // does not fail: nothing waits and nothing is held any more

// Where something fails before finish(), what waits is dropped.
class GradientsHeld {
 public:
  explicit GradientsHeld(Context& ctx) : ctx_(ctx) { hold_gradients(ctx_); }
  ~GradientsHeld() { drop_gradients(ctx_); }
  GradientsHeld(const GradientsHeld&) = delete;
  GradientsHeld& operator=(const GradientsHeld&) = delete;
  void finish() { finish_gradients(ctx_); }

 private:
  Context& ctx_;
};

}  // namespace some::ops
