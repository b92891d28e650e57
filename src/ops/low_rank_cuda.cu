// Thin products: [choices, columns] times a factor of a few columns per group. They do 2 * rank operations for each
// number they read, far below the couple of hundred per byte at which arithmetic would begin to matter. What counts is
// that rows are read only once, 16 bytes at a time, with enough of them in flight. For 27,000 choices, rows of 1,024
// and rank 2 that is 56 MB and 113 MFLOP: 13 us of memory traffic, 2 us of multiply-adds. A group's factor (4 KB) stays
// in the first-level cache.
#include "ops/cuda_launch.cuh"
#include "ops/cuda_toolkit.cuh"
#include "ops/low_rank_cuda.h"

namespace some::ops::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_size;
constexpr int together = 4;                    // rows of a warp whose loads are in flight at a time
constexpr int block_rows = warps * together;   // rows per block of the product
constexpr int parts = tile_rows / block_rows;  // blocks per tile of rows

struct ProductOf {
  const void* rows;
  const void* factor;
  const Tile* tiles;
  const std::int32_t* order;
  void* result;
  int gather, rank, columns;
};

// Four rows per warp, kWidth adjacent columns per lane, and kRanks of the ranks (blockIdx.y says which). kFirst: the
// factor is [rank, columns]. If it is [columns, rank] and kWidth > 1, then rank must be kRanks.
template <typename T, int kRanks, int kWidth, bool kFirst>
__global__ void __launch_bounds__(threads) thin_product_kernel(const ProductOf product) {
  after_previous();
  const int index = blockIdx.x / parts;
  if (index >= product.tiles[0].group) return;
  const Tile tile = product.tiles[1 + index];
  const int lane = threadIdx.x % warp_size;
  const int first = tile.begin + (blockIdx.x % parts) * block_rows + threadIdx.x / warp_size * together;
  if (first >= tile.end) return;
  const int columns = product.columns, rank = product.rank, begin = blockIdx.y * kRanks;
  const T* const factor =
      static_cast<const T*>(product.factor) + static_cast<std::int64_t>(tile.group) * columns * rank;
  const T* rows[together];
#pragma unroll
  for (int i = 0; i < together; ++i) {
    const int j = min(first + i, tile.end - 1);
    const std::int64_t source = product.gather == 0 ? j : product.order[j] / product.gather;
    rows[i] = static_cast<const T*>(product.rows) + source * columns;
  }
  float sums[together][kRanks] = {};
#pragma unroll 2
  for (int column = lane * kWidth; column < columns; column += warp_size * kWidth) {
    float x[together][kWidth];
#pragma unroll
    for (int i = 0; i < together; ++i) load_elements<kWidth>(rows[i] + column, x[i]);
#pragma unroll
    for (int piece = 0; piece < kRanks; ++piece) {  // a piece is kWidth numbers of the factor
      float values[kWidth];
      if constexpr (kFirst) {
        if (begin + piece >= rank) break;
        load_elements<kWidth>(factor + static_cast<std::int64_t>(begin + piece) * columns + column, values);
      } else if constexpr (kWidth > 1) {
        load_elements<kWidth>(factor + static_cast<std::int64_t>(column) * kRanks + piece * kWidth, values);
      } else {
        if (begin + piece >= rank) break;
        values[0] = to_f32(factor[static_cast<std::int64_t>(column) * rank + begin + piece]);
      }
#pragma unroll
      for (int n = 0; n < kWidth; ++n) {
        const int flat = piece * kWidth + n;
        const int c = kFirst ? n : flat / kRanks, r = kFirst ? piece : flat % kRanks;
#pragma unroll
        for (int i = 0; i < together; ++i) sums[i][r] = fmaf(x[i][c], values[n], sums[i][r]);
      }
    }
  }
  static_assert(together * kRanks <= warp_size);
  float own = 0.f;  // lane i * kRanks + r keeps the sum for row i and rank r
#pragma unroll
  for (int i = 0; i < together; ++i) {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      const float sum = warp_sum(sums[i][r]);
      if (lane == i * kRanks + r) own = sum;
    }
  }
  const int j = first + lane / kRanks, r = begin + lane % kRanks;
  if (lane < together * kRanks && j < tile.end && r < rank)
    static_cast<T*>(product.result)[static_cast<std::int64_t>(j) * rank + r] = from_f32<T>(own);
}

struct GradientOf {
  const void* rows;
  const void* low;
  const Tile* tiles;
  const std::int32_t* order;
  const float* gates;
  float* partials;  // [tiles, elements of one group in the target]
  int gather, rank, columns;
  bool first;
};

// All ranks of a row, read in one access where they fit.
template <typename T, int kRanks>
struct alignas(kRanks * sizeof(T) < 16 ? kRanks * sizeof(T) : 16) Ranks {
  T values[kRanks];
};

constexpr int row_lanes = 8;                    // lanes per row
constexpr int row_slots = threads / row_lanes;  // rows that a block handles at a time

// A block computes 8 * kWidth columns of what one tile of rows contributes, 32 rows at a time: each thread adds up
// every 32nd row, then the threads of a warp are added by a butterfly and the warps in their order. The work is divided
// by tiles and not by groups, because an unbalanced router sends most rows to a few groups, for which all others would
// wait.
template <typename T, int kRanks, int kWidth, bool kGelu>
__global__ void __launch_bounds__(threads, 2) thin_gradient_kernel(const GradientOf gradient) {
  after_previous();
  constexpr int width = row_lanes * kWidth;
  __shared__ float shared[warps][kRanks][width];
  if (blockIdx.x >= static_cast<unsigned>(gradient.tiles[0].group)) return;
  const Tile tile = gradient.tiles[1 + blockIdx.x];
  const int begin = tile.begin, end = tile.end;
  const int rank = gradient.rank, columns = gradient.columns, first_rank = blockIdx.z * kRanks;
  const int lane = threadIdx.x % row_lanes, first_column = blockIdx.y * width, column = first_column + lane * kWidth;
  constexpr int ahead = kRanks > 4 ? 2 : 4;  // rows of a thread whose loads are in flight at a time
  const bool choices = gradient.gather != 0 || gradient.gates != nullptr, whole = rank == kRanks;
  const T* const columns_of = static_cast<const T*>(gradient.rows) + (column < columns ? column : 0);
  float sums[kRanks][kWidth] = {};
  for (int start = begin + threadIdx.x / row_lanes; start < end; start += row_slots * ahead) {
    float x[ahead][kWidth], low[ahead][kRanks];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {  // rows past the end repeat the last one with weight 0: no branch between loads
      const int j = min(start + i * row_slots, end - 1);
      const int choice = choices ? gradient.order[j] : 0;
      const std::int64_t source = gradient.gather == 0 ? j : choice / gradient.gather;
      load_elements<kWidth>(columns_of + source * columns, x[i]);
      const float weight =
          start + i * row_slots < end ? (gradient.gates != nullptr ? gradient.gates[choice] : 1.f) : 0.f;
      const T* const ranks = static_cast<const T*>(gradient.low) + static_cast<std::int64_t>(j) * rank + first_rank;
      if (whole) {
        const Ranks<T, kRanks> all = *reinterpret_cast<const Ranks<T, kRanks>*>(ranks);
#pragma unroll
        for (int r = 0; r < kRanks; ++r) low[i][r] = weight * to_f32(all.values[r]);
      } else {
#pragma unroll
        for (int r = 0; r < kRanks; ++r) low[i][r] = first_rank + r < rank ? weight * to_f32(ranks[r]) : 0.f;
      }
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
#pragma unroll
      for (int n = 0; n < kWidth; ++n) {
        const float value = kGelu ? gelu_of<T>(x[i][n]).value : x[i][n];
#pragma unroll
        for (int r = 0; r < kRanks; ++r) sums[r][n] = fmaf(low[i][r], value, sums[r][n]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
#pragma unroll
    for (int n = 0; n < kWidth; ++n) {
      float sum = sums[r][n];
      sum += __shfl_xor_sync(full_warp, sum, 8);
      sum += __shfl_xor_sync(full_warp, sum, 16);
      if (threadIdx.x % warp_size < row_lanes) shared[threadIdx.x / warp_size][r][lane * kWidth + n] = sum;
    }
  }
  __syncthreads();
  float* const partial = gradient.partials + static_cast<std::int64_t>(blockIdx.x) * columns * rank;
  for (int at = threadIdx.x; at < kRanks * width; at += threads) {
    const int r = gradient.first ? at / width : at % kRanks, c = gradient.first ? at % width : at / kRanks;
    if (first_rank + r >= rank || first_column + c >= columns) continue;
    float sum = 0.f;
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) sum += shared[warp][r][c];
    const std::int64_t row = gradient.first ? first_rank + r : first_column + c;
    partial[gradient.first ? row * columns + first_column + c : row * rank + first_rank + r] = sum;
  }
}

// Adds up what the tiles of each group contributed, in their order.
__global__ void __launch_bounds__(threads)
    add_tiles_kernel(const float* partials, const Tile* tiles, const std::int32_t* offsets, int size, float* target) {
  after_previous();
  const int group = blockIdx.y, at = blockIdx.x * threads + threadIdx.x;
  const int count = (offsets[group + 1] - offsets[group] + tile_rows - 1) / tile_rows;
  if (count == 0 || at >= size) return;
  int first = 0;  // becomes the group's first tile; tiles are in the order of their groups
  for (int end = tiles[0].group; first < end;) {
    const int middle = (first + end) / 2;
    if (tiles[1 + middle].group < group) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  float sum = 0.f;
  for (int i = 0; i < count; ++i) sum += partials[static_cast<std::int64_t>(first + i) * size + at];
  target[static_cast<std::int64_t>(group) * size + at] += sum;
}

// Calls run with the number of ranks that a block handles, 2, 4 or 8, as a compile-time constant.
template <typename Run>
void by_ranks(std::int64_t rank, Run&& run) {
  if (rank <= 2) return run(std::integral_constant<int, 2>{});
  if (rank <= 4) return run(std::integral_constant<int, 4>{});
  run(std::integral_constant<int, 8>{});
}

}  // namespace

void thin_product(Context& ctx, const DispatchPlan& plan, const ThinRows& rows, const Factor& factor,
                  const Tensor& result) {
  const std::int64_t choices = plan.order.elements(), rank = factor.rank(), columns = factor.columns();
  const ArenaScope scope(*ctx.arena);
  const Tensor tiles = tile_table(ctx, plan);
  const ProductOf product{rows.values.raw(),
                          factor.values.raw(),
                          static_cast<const Tile*>(tiles.raw()),
                          plan.order.data<std::int32_t>(),
                          result.raw(),
                          rows.gather,
                          static_cast<int>(rank),
                          static_cast<int>(columns)};
  with_real_type(ctx.compute, "a low-rank correction", [&](auto tag) {
    using T = decltype(tag);
    by_ranks(rank, [&](auto of_ranks) {
      constexpr int kRanks = decltype(of_ranks)::value, wide = vector_width<T>;
      const bool vectors =
          columns % wide == 0 && all_aligned16(product.rows, product.factor) && (factor.first || rank == kRanks);
      const auto kernel =
          factor.first
              ? (vectors ? thin_product_kernel<T, kRanks, wide, true> : thin_product_kernel<T, kRanks, 1, true>)
              : (vectors ? thin_product_kernel<T, kRanks, wide, false> : thin_product_kernel<T, kRanks, 1, false>);
      const dim3 grid(static_cast<unsigned>((tile_table_entries(choices, plan.experts) - 1) * parts),
                      grid_for(rank, kRanks));
      launch_behind(ctx, kernel, grid, threads, 0, product);
    });
  });
}

void thin_gradient(Context& ctx, const DispatchPlan& plan, const ThinGradient& gradient) {
  const std::int64_t rank = gradient.low.dim(1), columns = gradient.target.dim(gradient.first ? 2 : 1);
  const ArenaScope scope(*ctx.arena);
  const Tensor tiles = tile_table(ctx, plan);
  const std::int64_t most_tiles = tile_table_entries(plan.order.elements(), plan.experts) - 1;
  const Tensor partials = ctx.scratch({most_tiles, rank * columns}, DType::f32);
  const GradientOf of{gradient.rows.values.raw(),
                      gradient.low.raw(),
                      static_cast<const Tile*>(tiles.raw()),
                      plan.order.data<std::int32_t>(),
                      gradient.gates,
                      floats(partials),
                      gradient.rows.gather,
                      static_cast<int>(rank),
                      static_cast<int>(columns),
                      gradient.first};
  with_real_type(ctx.compute, "a low-rank correction", [&](auto tag) {
    using T = decltype(tag);
    by_ranks(rank, [&](auto of_ranks) {
      constexpr int kRanks = decltype(of_ranks)::value, wide = vector_width<T>;
      const bool vectors = columns % wide == 0 && aligned16(of.rows);
      const auto launch = [&](auto kernel, int width) {
        const dim3 grid(static_cast<unsigned>(most_tiles), grid_for(columns, row_lanes * width),
                        grid_for(rank, kRanks));
        launch_behind(ctx, kernel, grid, threads, 0, of);
      };
      if (gradient.gelu) {
        vectors ? launch(thin_gradient_kernel<T, kRanks, wide, true>, wide)
                : launch(thin_gradient_kernel<T, kRanks, 1, true>, 1);
      } else {
        vectors ? launch(thin_gradient_kernel<T, kRanks, wide, false>, wide)
                : launch(thin_gradient_kernel<T, kRanks, 1, false>, 1);
      }
    });
  });
  const dim3 grid(grid_for(rank * columns, threads), static_cast<unsigned>(plan.experts));
  launch_behind(ctx, add_tiles_kernel, grid, threads, 0, static_cast<const float*>(floats(partials)), of.tiles,
                static_cast<const std::int32_t*>(plan.offsets.data<std::int32_t>()), static_cast<int>(rank * columns),
                floats(gradient.target));
}

}  // namespace some::ops::cuda
