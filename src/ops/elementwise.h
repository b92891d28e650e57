// Operations on whole tensors.
#pragma once

#include <span>

#include "runtime/op.h"

namespace some {

SOME_OP(void, add_into, (Context & ctx, const Tensor& x, Tensor& y),
        (ctx, x, y))  // y += x; same shape; real types may differ (compute/master), as may i32 and i64
SOME_OP(void, convert, (Context & ctx, const Tensor& x, Tensor& y), (ctx, x, y))  // y = x in y's type
SOME_OP(void, fill, (Context & ctx, double value, Tensor& x), (ctx, value, x))
// Sets x[i] = values[i] for at most 8 values, in one launch; x: master.
SOME_OP(void, fill_each, (Context & ctx, std::span<const double> values, Tensor& x), (ctx, values, x))
// Computes out[0] = sum of x, in a fixed order; x, out: master.
SOME_OP(void, sum_all, (Context & ctx, const Tensor& x, Tensor& out), (ctx, x, out))
// Computes y[i] = x[rows[i]], zeros for a row of -1; rows: i32 [N].
SOME_OP(void, gather_rows, (Context & ctx, const Tensor& x, const Tensor& rows, Tensor& y), (ctx, x, rows, y))
// Computes y = exp(x); x, y: master.
SOME_OP(void, exponential, (Context & ctx, const Tensor& x, Tensor& y), (ctx, x, y))
// Computes y += a * b, element by element; master.
SOME_OP(void, multiply_add, (Context & ctx, const Tensor& a, const Tensor& b, Tensor& y), (ctx, a, b, y))
// Computes totals[l][e] += sum over the columns of counts[l][e, :], for each layer l; counts: i32 [E, k], totals: i64
// [E].
SOME_OP(void, add_counts, (Context & ctx, std::span<const Tensor> counts, std::span<const Tensor> totals),
        (ctx, counts, totals))
inline void add_counts(Context& ctx, const Tensor& counts, const Tensor& total) {
  add_counts(ctx, std::span(&counts, 1), std::span(&total, 1));
}

}  // namespace some
