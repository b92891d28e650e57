// Scores of rows with keys, all of them.
#include "memory/product_cuda.cuh"

namespace some::memory::cuda {
namespace {

constexpr int scored_rows = 128;
using ScoresTile = Product<scored_rows, 2, 1>;

__global__ void __launch_bounds__(ScoresTile::threads)
    scores_kernel(const float* rows, const float* keys, int row_count, int slots, int d, float* scores) {
  after_whole_previous();
  using Tile = ScoresTile;
  extern __shared__ __align__(16) unsigned char product_shared[];
  const int first_row = static_cast<int>(blockIdx.y) * scored_rows,
            first_slot = static_cast<int>(blockIdx.x) * product_slots;
  float own[Tile::eights][4];
  Tile::multiply(product_shared, RowsOf{rows, d}, keys, first_row, first_slot, row_count, slots, d, own);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + Tile::row_of(half);
    float* const to = scores + static_cast<std::int64_t>(row) * slots;
#pragma unroll
    for (int n = 0; n < Tile::eights; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int slot = first_slot + Tile::slot_of(n, i);
        if (row < row_count && slot < slots) to[slot] = own[n][2 * half + i];
      }
    }
  }
}

}  // namespace

void score(Context& ctx, const Store& store, const float* queries, std::int64_t rows, std::int64_t first,
           std::int64_t last, float* scores) {
  const std::int64_t d = store.keys.dim(1), slots = last - first;
  const float* keys = floats(store.keys) + first * d;
  if (d % product_depth != 0 || !fits<ScoresTile>(ctx))
    return matmul(ctx, rows, slots, d, {queries, DType::f32, false}, {keys, DType::f32, true}, scores, DType::f32,
                  false);
  launch_product<ScoresTile>(ctx, scores_kernel, dim3(grid_for(slots, product_slots), grid_for(rows, scored_rows)), 0,
                             queries, keys, static_cast<int>(rows), static_cast<int>(slots), static_cast<int>(d),
                             scores);
}

}  // namespace some::memory::cuda
