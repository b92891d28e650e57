// The thin products of low-rank corrections (kernels/gemm/low_rank.h) on the GPU, for choices grouped by expert. CUDA
// only. What a correction adds to a product is computed together with that product (GroupedProduct::low).
#pragma once

#include <span>

#include "kernels/gemm/grouped_gemm.h"

namespace some::cuda {

// One factor per group: [rank, columns] if it is the first (LowRank::a), [columns, rank] if it is the second
// (LowRank::b).
struct Factor {
  Tensor values;  // compute
  bool first = true;
  std::int64_t rank() const { return values.dim(first ? 1 : 2); }
  std::int64_t columns() const { return values.dim(first ? 2 : 1); }
};

// The rows a thin product reads: row j is values[order[j] / gather], or values[j] without gathering.
struct ThinRows {
  Tensor values;  // [*, columns] compute
  int gather = 0;
};

// result[j, r] = sum_c rows[j, c] * factor[group(j)][r, c]; result: [choices, rank] compute.
void thin_product(Context& ctx, const DispatchPlan& plan, const ThinRows& rows, const Factor& factor,
                  const Tensor& result);

// target[g][r, c] += sum over the choices j of group g, in a fixed order, of low[j, r] * rows[j, c]; with `gelu`,
// GELU(rows[j, c]) stands for rows[j, c], and with gates each term is multiplied by its choice's gate. low: [choices,
// rank]; target is laid out as the factor whose gradient it is.
struct ThinGradient {
  ThinRows rows;
  bool gelu = false;
  Tensor low;
  const float* gates = nullptr;  // indexed by choice
  Tensor target;                 // master
  bool first = true;             // as Factor's
};
// At most two, of one rank and for different targets, share their launches.
void thin_gradients(Context& ctx, const DispatchPlan& plan, std::span<const ThinGradient> gradients);

}  // namespace some::cuda
