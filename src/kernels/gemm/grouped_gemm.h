// Products of many groups of rows with one matrix each: the experts' work, and dense layers as a single group. Operands
// are bf16 (tensor cores) or f32 (plain arithmetic, for verification); sums are fp32.
#pragma once

#include <cstdint>

#include "kernels/cuda/matmul.h"
#include "kernels/gemm/dispatch_plan.h"
#include "kernels/gemm/low_rank.h"

namespace some::cuda {

// Rows are processed in tiles of this height, which never span two groups.
inline constexpr int tile_rows = 128;

// Entry 0 of a tile table holds the number of tiles in its first member; then follows one entry per tile: group, first
// row, end row.
struct alignas(16) Tile {
  std::int32_t group, begin, end, unused;
};

// Enough entries for any division of `rows` into `groups`.
inline std::int64_t tile_table_entries(std::int64_t rows, std::int64_t groups) { return 1 + rows / tile_rows + groups; }

// The plan's own table, or one made from its offsets in the context's arena.
Tensor tile_table(Context& ctx, const DispatchPlan& plan);

enum class Epilogue {
  store,           // result = product
  gelu,            // result = product; activated = GELU(product)
  gelu_backward,   // result holds pre: row_sums += product * GELU(pre); result = gate * product * GELU'(pre)
  gelu_slope,      // result = GELU'(product); activated = GELU(product)
  slope_backward,  // result = gate * product * result
};
// Whether the result is read before it is written.
constexpr bool reads_result(Epilogue finish) {
  return finish == Epilogue::gelu_backward || finish == Epilogue::slope_backward;
}
// Whether `activated` is written.
constexpr bool activates(Epilogue finish) { return finish == Epilogue::gelu || finish == Epilogue::gelu_slope; }
// Whether a low-rank correction can precede it: experts that have one keep the input of their GELU, not its slope.
constexpr bool takes_correction(Epilogue finish) {
  return finish == Epilogue::store || finish == Epilogue::gelu || finish == Epilogue::gelu_backward;
}

// result[j, n] = sum_c a[source(j), c] * b[group(j)][n, c], or b[group(j)][c, n] when b_transposed. With a low-rank
// correction of rank > 0, before the finish: + sum_r low[j, r] * factor[group(j)][n, r], or factor[group(j)][r, n] when
// factor_transposed. With `inner`, which only kernels that makes_low() speaks of may be given, low is not read but
// made: low[j, r] = sum_c a[source(j), c] * inner[group(j)][r, c], or inner[group(j)][c, r] when factor_transposed.
struct GroupedProduct {
  DType type = DType::bf16;
  const void* a = nullptr;
  const void* b = nullptr;
  bool b_transposed = false;
  std::int64_t rows = 0, columns = 0, depth = 0, groups = 1;
  const Tile* tiles = nullptr;  // null: one group of all rows
  const std::int32_t* order = nullptr;
  int gather = 0;                // source(j) = order[j] / gather; 0: source(j) = j
  void* low = nullptr;           // [rows, rank], the operands' type
  const void* factor = nullptr;  // the same type
  bool factor_transposed = false;
  const void* inner = nullptr;  // the same type
  int rank = 0;
  Epilogue finish = Epilogue::store;
  void* result = nullptr;        // [rows, columns], the operands' type
  void* activated = nullptr;     // the same; for Finish::gelu and gelu_slope
  const float* gates = nullptr;  // indexed by order[j]; null: 1. For Finish::gelu_backward and slope_backward
  float* row_sums =
      nullptr;  // [rows, row_sum_slots(product)] parts of each row's sum, or null. For Finish::gelu_backward
};

// How many parts of each row's sum the kernel that will be chosen writes.
int row_sum_slots(const Context& ctx, const GroupedProduct& product);
void grouped_product(Context& ctx, const GroupedProduct& product);
// Whether grouped_product() can make `low` out of `inner` while it computes this product.
bool makes_low(const Context& ctx, const GroupedProduct& product);

// Kernels are chosen by device, type and sizes; tests and benchmarks may ask for a particular one.
enum class Kernel { plain, warp, warpgroup };
Kernel choose_kernel(const Context& ctx, const GroupedProduct& product);
void run_grouped_product(Context& ctx, const GroupedProduct& product, Kernel kernel);

// target[g][m, n] += sum over the rows j of group g of u[j, m] * v[j, n], in fp32. u_gather, v_gather as `gather`
// above.
struct GroupedOuter {
  DType type = DType::bf16;
  const void* u = nullptr;
  const void* v = nullptr;
  int u_gather = 0, v_gather = 0;
  const std::int32_t* order = nullptr;
  const std::int32_t* offsets = nullptr;  // [groups + 1]
  std::int64_t m = 0, n = 0, groups = 0;
  float* target = nullptr;
};
void grouped_outer(Context& ctx, const GroupedOuter& outer);

}  // namespace some::cuda
