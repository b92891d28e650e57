// Thin GEMMs of low-rank corrections (kernels/gemm/low_rank.h) on the GPU, for routing slots grouped by expert. CUDA
// only. The correction of a GEMM's result is computed together with that GEMM (GroupedGemm::low).
#pragma once

#include <span>

#include "kernels/gemm/grouped_gemm.h"

namespace some::cuda {

// One factor per group: [rank, columns] for the first (LowRank::a), [columns, rank] for the second (LowRank::b).
struct Factor {
  Tensor values;  // compute
  bool first = true;
  std::int64_t rank() const { return values.dim(first ? 1 : 2); }
  std::int64_t columns() const { return values.dim(first ? 2 : 1); }
};

// The rows that a thin GEMM reads: row j is values[order[j] / gather], or values[j] without gathering.
struct ThinRows {
  Tensor values;  // [*, columns] compute
  int gather = 0;
};

// Computes result[j, r] = sum_c rows[j, c] * factor[group(j)][r, c]; result: [routing slots, rank] compute.
void thin_gemm(Context& ctx, const DispatchPlan& plan, const ThinRows& rows, const Factor& factor,
               const Tensor& result);

// Computes target[g][r, c] += sum over the routing slots j of group g, in a fixed order, of low[j, r] * rows[j, c].
// With `gelu`, rows[j, c] is replaced by GELU(rows[j, c]); with gates, each term is multiplied by its slot's gate. low:
// [routing slots, rank]; target has the layout of the factor whose gradient it is.
struct ThinGradient {
  ThinRows rows;
  bool gelu = false;
  Tensor low;
  const float* gates = nullptr;  // indexed by routing slot
  Tensor target;                 // master
  bool first = true;             // as in Factor
};
// Computes at most two gradients, of the same rank and with different targets, in shared launches.
void thin_gradients(Context& ctx, const DispatchPlan& plan, std::span<const ThinGradient> gradients);

}  // namespace some::cuda
