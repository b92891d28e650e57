// Short causal depthwise convolution over the hidden states of earlier tokens in the same sequence (spec 2).
#pragma once

#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Computes rows[t, j] = the row of the state j tokens before t in its sequence, or -1 if the sequence starts later;
// rows: i32 [T, n + 1], so that rows[t, 0] = t. positions: i32 [T], position of each row in its sequence; the rows of a
// sequence are contiguous.
SOME_OP(void, conv_rows, (Context & ctx, const Tensor& positions, Tensor& rows), (ctx, positions, rows))

// Computes y[t] = x[rows[t, 0]] + sum over j = 1..m of taps[j - 1] * x[rows[t, j]], element by element; a row of -1
// counts as 0. x: [R, d], y: [T, d] compute; taps: [m, d], m <= n. rows need not come from conv_rows here: in
// generation x is a cache.
SOME_OP(void, conv_forward, (Context & ctx, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& y),
        (ctx, x, rows, taps, y))
// Adds the gradients to dx ([T, d] compute) and, if present, taps.grad. rows must come from conv_rows.
SOME_OP(void, conv_backward,
        (Context & ctx, const Tensor& dy, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& dx),
        (ctx, dy, x, rows, taps, dx))

// Computes y[rows[i]] = x[i]; rows: i32 [T], all different.
SOME_OP(void, scatter_rows, (Context & ctx, const Tensor& x, const Tensor& rows, Tensor& y), (ctx, x, rows, y))

}  // namespace some
