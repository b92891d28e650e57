// Looking back: states of earlier tokens in the same sequence (spec 2).
#pragma once

#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// rows[t, j] = the row of the state j tokens before t in its sequence, -1 where there is none; rows: i32 [T, n + 1],
// so that rows[t, 0] = t. positions: i32 [T], where each row stands in its sequence; a sequence's rows lie one after
// another.
SOME_OP(void, conv_rows, (Context & ctx, const Tensor& positions, Tensor& rows), (ctx, positions, rows))

// y[t] = x[rows[t, 0]] + sum over j = 1..m of taps[j - 1] * x[rows[t, j]], element by element; a row of -1 counts as 0.
// x: [R, d], y: [T, d] compute; taps: [m, d], m <= n. (rows need not be those of conv_rows here: in generation x is a
// cache.)
SOME_OP(void, conv_forward, (Context & ctx, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& y),
        (ctx, x, rows, taps, y))
// Only for the rows that conv_rows gives. dx [T, d] compute is ADDED to, and taps.grad where there is one.
SOME_OP(void, conv_backward,
        (Context & ctx, const Tensor& dy, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& dx),
        (ctx, dy, x, rows, taps, dx))

// y[rows[i]] = x[i]; rows: i32 [T], all different.
SOME_OP(void, scatter_rows, (Context & ctx, const Tensor& x, const Tensor& rows, Tensor& y), (ctx, x, rows, y))

}  // namespace some
