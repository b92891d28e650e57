// Gradients that are sums over rows (of biases and norms) are computed in two stages. While a SumsHeld exists, the
// second may be put off, so that many layers share one launch; such gradients are complete only after its finish().
#pragma once

#include "base/rooms.h"
#include "ops/op.h"

namespace some::ops {

SOME_OP(void, hold_sums, (Context & ctx), (ctx))
SOME_OP(void, finish_sums, (Context & ctx), (ctx))
SOME_OP(void, drop_sums, (Context & ctx), (ctx))  // does not fail: nothing waits and nothing is held any more

// If something fails before finish(), what was put off is dropped: nobody will ask for it, and it must not be mixed
// with later sums.
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
