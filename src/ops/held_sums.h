// Gradients that are sums over rows (of biases and norms) are made in two stages. Between hold_sums and finish_sums the
// second may wait, so that those of many layers are one launch: such gradients are complete only after finish_sums.
#pragma once

#include "ops/op.h"

namespace some {

// What was held before and not finished, because something failed in between, is dropped.
SOME_OP(void, hold_sums, (Context & ctx), (ctx))
SOME_OP(void, finish_sums, (Context & ctx), (ctx))

}  // namespace some
