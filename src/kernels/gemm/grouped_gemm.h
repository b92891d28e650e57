// Grouped GEMM: multiplies many groups of rows with one matrix per group. Used for the experts, and for dense layers as
// a single group. Operands are bf16 (tensor cores) or f32 (plain arithmetic, for verification); sums are fp32.
#pragma once

#include <cstdint>

#include "kernels/cuda/matmul.h"
#include "kernels/gemm/dispatch_plan.h"
#include "kernels/gemm/low_rank.h"

namespace some::cuda {

// Height of a row tile. A tile never spans two groups.
inline constexpr int tile_rows = 128;

// Entry of a tile table. Entry 0 holds the number of tiles in its first member; after it there is one entry per tile:
// group, first row, end row.
struct alignas(16) Tile {
  std::int32_t group, begin, end, unused;
};

// Returns the number of entries that suffice for any division of `rows` into `groups`.
inline std::int64_t tile_table_entries(std::int64_t rows, std::int64_t groups) { return 1 + rows / tile_rows + groups; }

// Returns the plan's own table, or one built from its offsets in the context's arena.
Tensor tile_table(Context& ctx, const DispatchPlan& plan);

enum class Epilogue {
  store,           // result = product
  gelu,            // result = product; activated = GELU(product)
  gelu_backward,   // result holds pre: row_sums += product * GELU(pre); result = gate * product * GELU'(pre)
  gelu_slope,      // result = GELU'(product); activated = GELU(product)
  slope_backward,  // result = gate * product * result
};
// True if the result is read before it is written.
constexpr bool reads_result(Epilogue finish) {
  return finish == Epilogue::gelu_backward || finish == Epilogue::slope_backward;
}
// True if `activated` is written.
constexpr bool activates(Epilogue finish) { return finish == Epilogue::gelu || finish == Epilogue::gelu_slope; }
// True if a low-rank correction can precede the epilogue: experts with such a correction keep the input of their GELU,
// not its slope.
constexpr bool supports_correction(Epilogue finish) {
  return finish == Epilogue::store || finish == Epilogue::gelu || finish == Epilogue::gelu_backward;
}

// Computes result[j, n] = sum_c a[source(j), c] * b[group(j)][n, c], or b[group(j)][c, n] when b_transposed. With a
// low-rank correction of rank > 0, before the epilogue: + sum_r low[j, r] * factor[group(j)][n, r], or
// factor[group(j)][r, n] when factor_transposed. If `inner` is set, low is computed rather than read: low[j, r] = sum_c
// a[source(j), c] * inner[group(j)][r, c], or inner[group(j)][c, r] when factor_transposed. `inner` may be set only if
// computes_low() is true.
struct GroupedGemm {
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
  void* activated = nullptr;     // the same type; for Epilogue::gelu and gelu_slope
  const float* gates = nullptr;  // indexed by order[j]; null: 1. For Epilogue::gelu_backward and slope_backward
  float* row_sums =
      nullptr;  // [rows, row_sum_parts(product)] partial sums of each row, or null. For Epilogue::gelu_backward
};

// Returns the number of partial sums per row that the kernel chosen for this GEMM writes.
int row_sum_parts(const Context& ctx, const GroupedGemm& product);
void launch_grouped_gemm(Context& ctx, const GroupedGemm& product);
// True if launch_grouped_gemm() can compute `low` from `inner` during this GEMM.
bool computes_low(const Context& ctx, const GroupedGemm& product);

// The kernel is chosen by device, type and sizes; tests and benchmarks may request a particular one.
enum class Kernel { plain, warp, warpgroup };
Kernel choose_kernel(const Context& ctx, const GroupedGemm& product);
void run_grouped_product(Context& ctx, const GroupedGemm& product, Kernel kernel);

// Computes target[g][m, n] += sum over the rows j of group g of u[j, m] * v[j, n], in fp32. u_gather and v_gather work
// like `gather` above.
struct GroupedGradientGemm {
  DType type = DType::bf16;
  const void* u = nullptr;
  const void* v = nullptr;
  int u_gather = 0, v_gather = 0;
  const std::int32_t* order = nullptr;
  const std::int32_t* offsets = nullptr;  // [groups + 1]
  std::int64_t m = 0, n = 0, groups = 0;
  float* target = nullptr;
};
void launch_grouped_gradient_gemm(Context& ctx, const GroupedGradientGemm& outer);

}  // namespace some::cuda
