// Gradients that are sums over rows (of biases and norms) are made in two stages. While a SumsHeld lives the second may
// wait, so that those of many layers are one launch: such gradients are complete only after its finish().
#pragma once

#include "base/rooms.h"
#include "ops/op.h"

namespace some::ops {

SOME_OP(void, hold_sums, (Context & ctx), (ctx))
SOME_OP(void, finish_sums, (Context & ctx), (ctx))
SOME_OP(void, drop_sums, (Context & ctx), (ctx))  // does not fail: nothing waits and nothing is held any more

// Where something fails before finish(), what waits is dropped: nobody would ask for it, and sums made later must not
// wait with it.
class SumsHeld {
 public:
  explicit SumsHeld(Context& ctx) : ctx_(ctx) { hold_sums(ctx_); }
  ~SumsHeld() { drop_sums(ctx_); }
  SumsHeld(const SumsHeld&) = delete;
  SumsHeld& operator=(const SumsHeld&) = delete;
  void finish() { finish_sums(ctx_); }

 private:
  Context& ctx_;
};

}  // namespace some::ops
