// Dropout (spec 2): zeroes channels at random and scales the others, in training only.
#pragma once

#include "ops/dropout_mask.h"
#include "runtime/op.h"

namespace some {

struct Dropout {
  double rate = 0;
  std::uint64_t place = 0;          // 0: embedding; 1 + 2 * layer: attention; 2 + 2 * layer: feed-forward block
  std::int64_t first_position = 0;  // of the first row in its step
  Tensor key{};                     // [4] master: dropout_key_pieces
};

// Computes y[t, j] = 0 or x[t, j] * scale. x, y: [T, d] compute; y may be x. The backward pass is the same function of
// the gradient.
SOME_OP(void, apply_dropout, (Context & ctx, const Dropout& dropout, const Tensor& x, Tensor& y), (ctx, dropout, x, y))

}  // namespace some
