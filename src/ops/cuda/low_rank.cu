// Thin GEMMs: [routing slots, columns] times a factor of a few columns per group. They compute 2 * rank FLOPs per
// number read, far below the couple of hundred per byte at which arithmetic would begin to matter. So rows must be read
// only once, 16 bytes at a time, with enough of them in flight. For 27,000 routing slots, rows of 1,024 and rank 2 that
// is 56 MB and 113 MFLOP: 13 us of memory traffic, 2 us of multiply-adds. A group's factor (4 KB) stays in the L1
// cache.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "ops/cuda/low_rank.h"

namespace some::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_size;
constexpr int together = 4;                    // rows of a warp whose loads are in flight at a time
constexpr int block_rows = warps * together;   // rows per block of the GEMM
constexpr int parts = tile_rows / block_rows;  // blocks per tile of rows

struct ThinGemm {
  const void* rows;
  const void* factor;
  const Tile* tiles;
  const std::int32_t* order;
  void* result;
  int gather, rank, columns;
};

// Computes thin GEMMs with four rows per warp, kWidth adjacent columns per lane, and kRanks of the ranks (selected by
// blockIdx.y). kFirst: the factor is [rank, columns]. If it is [columns, rank] and kWidth > 1, then rank must be
// kRanks.
template <typename T, int kRanks, int kWidth, bool kFirst>
__global__ void __launch_bounds__(threads) thin_product_kernel(const ThinGemm product) {
  wait_previous_kernel();
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
  float* target;
  int gather, rank, columns;
  bool first;
};
constexpr int max_gradients = 2;  // per launch
struct GradientsOf {
  GradientOf of[max_gradients];
  int blocks,
      both;  // blocks per tile or group of the first gradient, and of both; the second's blocks follow the first's
};

// All ranks of a row, read in one access if they fit.
template <typename T, int kRanks>
struct alignas(kRanks * sizeof(T) < 16 ? kRanks * sizeof(T) : 16) Ranks {
  T values[kRanks];
};

constexpr int row_lanes = 8;                    // lanes per row
constexpr int row_slots = threads / row_lanes;  // rows that a block handles at a time

// Computes the contribution of one tile of rows to 8 * kWidth columns, 32 rows at a time: each thread sums every 32nd
// row, then the threads of a warp are added by a butterfly and the warps in order. The work is divided by tiles and not
// by groups, because an unbalanced router sends most rows to a few groups, for which all others would wait.
template <typename T, int kRanks, int kWidth, bool kGelu>
__global__ void __launch_bounds__(threads, 2) thin_gradient_kernel(const GradientOf gradient) {
  wait_previous_kernel();
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

constexpr int part_columns = 128, part_threads = 128, part_ranks = 8;
constexpr int row_bytes = part_columns * 2;

__device__ __forceinline__ std::uint32_t piece_place(int row, int piece) {
  return row * row_bytes + ((piece ^ (row & 7)) << 4);
}

// Computes the same in bf16 without gates or GELU, on the tensor cores: a block takes eight ranks and 128 columns of a
// tile of rows, and loads all these rows into shared memory at once. Half of the MMA's sixteen rows, which represent
// ranks, are zero; that is acceptable because the MMA leaves almost no work other than waiting for memory.
__global__ void __launch_bounds__(part_threads) warp_gradients_kernel(const __grid_constant__ GradientsOf all) {
  wait_previous_kernel();
  __shared__ alignas(128) unsigned char memory[tile_rows * row_bytes];
  __shared__ bf16 low[part_ranks][tile_rows + 8];  // wider by 16 bytes, so that lanes read from different banks
  __shared__ int sources[tile_rows];
  const int index = static_cast<int>(blockIdx.x) / all.both, block = static_cast<int>(blockIdx.x) % all.both;
  const bool second = block >= all.blocks;
  const GradientOf& gradient = all.of[second ? 1 : 0];
  if (index >= gradient.tiles[0].group) return;
  const Tile tile = gradient.tiles[1 + index];
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, count = tile.end - tile.begin;
  const int rank = gradient.rank, columns = gradient.columns, first_rank = blockIdx.z * part_ranks;
  const int first_column = (block - (second ? all.blocks : 0)) * part_columns;
  static_assert(part_threads == tile_rows);
  const int own = tile.begin + min(thread, count - 1);
  sources[thread] = gradient.gather == 0 ? own : gradient.order[own] / gradient.gather;
  __syncthreads();
  const std::uint32_t base = shared_address(memory);
  const int piece = thread & 15, column = first_column + piece * 8;
  const bf16* const from = static_cast<const bf16*>(gradient.rows) + (column < columns ? column : 0);
#pragma unroll
  for (int i = 0; i < tile_rows / 8; ++i) {
    const int row = thread / 16 + 8 * i;
    cp_async(base + piece_place(row, piece), from + static_cast<std::int64_t>(sources[row]) * columns,
             row < count && column < columns);
  }
  cp_async_commit();
  const bf16* const ranks = static_cast<const bf16*>(gradient.low) + static_cast<std::int64_t>(own) * rank + first_rank;
#pragma unroll
  for (int r = 0; r < part_ranks; ++r)
    low[r][thread] = thread < count && first_rank + r < rank ? ranks[r] : __float2bfloat16(0.f);
  cp_async_wait<0>();
  __syncthreads();
  float sums[4][4] = {};
  const int steps = (count + 15) / 16;
  for (int step = 0; step < steps; ++step) {
    const bf16* const at = &low[lane >> 2][step * 16 + 2 * (lane & 3)];
    const std::uint32_t left[4] = {*reinterpret_cast<const std::uint32_t*>(at), 0,
                                   *reinterpret_cast<const std::uint32_t*>(at + 8), 0};
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      std::uint32_t right[4];
      ldmatrix_x4_transposed(right, base + piece_place(step * 16 + (lane & 15), warp * 4 + pair * 2 + (lane >> 4)));
      multiply_add(sums[2 * pair], left, right[0], right[1]);
      multiply_add(sums[2 * pair + 1], left, right[2], right[3]);
    }
  }
  float* const partial = gradient.partials + static_cast<std::int64_t>(index) * columns * rank;
  const int r = first_rank + (lane >> 2);
  if (r >= rank) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = first_column + warp * 32 + i * 8 + 2 * (lane & 3);
    if (c >= columns) break;
    if (gradient.first) {
      *reinterpret_cast<float2*>(partial + r * columns + c) = make_float2(sums[i][0], sums[i][1]);
    } else {
      partial[c * rank + r] = sums[i][0];
      partial[(c + 1) * rank + r] = sums[i][1];
    }
  }
}

// Adds up the contributions of each group's tiles, in order.
__global__ void __launch_bounds__(threads)
    add_tiles_kernel(const __grid_constant__ GradientsOf all, const std::int32_t* offsets) {
  wait_previous_kernel();
  const bool second = static_cast<int>(blockIdx.x) >= all.blocks;
  const GradientOf& gradient = all.of[second ? 1 : 0];
  const int group = blockIdx.y, size = gradient.rank * gradient.columns;
  const int at = (static_cast<int>(blockIdx.x) - (second ? all.blocks : 0)) * threads + threadIdx.x;
  const int count = (offsets[group + 1] - offsets[group] + tile_rows - 1) / tile_rows;
  if (count == 0 || at >= size) return;
  int first = 0;  // becomes the group's first tile; tiles are in the order of their groups
  for (int end = gradient.tiles[0].group; first < end;) {
    const int middle = (first + end) / 2;
    if (gradient.tiles[1 + middle].group < group) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  float sum = 0.f;
  for (int i = 0; i < count; ++i) sum += gradient.partials[static_cast<std::int64_t>(first + i) * size + at];
  gradient.target[static_cast<std::int64_t>(group) * size + at] += sum;
}

// Calls run with the number of ranks that a block handles, 2, 4 or 8, as a compile-time constant.
template <typename Run>
void by_ranks(std::int64_t rank, Run&& run) {
  if (rank <= 2) return run(std::integral_constant<int, 2>{});
  if (rank <= 4) return run(std::integral_constant<int, 4>{});
  run(std::integral_constant<int, 8>{});
}

// Computes the contribution of each tile of rows by plain arithmetic.
void add_rows(Context& ctx, const GradientOf& of, std::int64_t max_tiles, bool gelu) {
  with_real_type(ctx.compute, "a low-rank correction", [&](auto tag) {
    using T = decltype(tag);
    by_ranks(of.rank, [&](auto of_ranks) {
      constexpr int kRanks = decltype(of_ranks)::value, wide = vector_width<T>;
      const bool vectors = of.columns % wide == 0 && aligned16(of.rows);
      const auto launch = [&](auto kernel, int width) {
        const dim3 grid(static_cast<unsigned>(max_tiles), grid_for(of.columns, row_lanes * width),
                        grid_for(of.rank, kRanks));
        launch_dependent(ctx, kernel, grid, threads, 0, of);
      };
      if (gelu) {
        vectors ? launch(thin_gradient_kernel<T, kRanks, wide, true>, wide)
                : launch(thin_gradient_kernel<T, kRanks, 1, true>, 1);
      } else {
        vectors ? launch(thin_gradient_kernel<T, kRanks, wide, false>, wide)
                : launch(thin_gradient_kernel<T, kRanks, 1, false>, 1);
      }
    });
  });
}

}  // namespace

void thin_gemm(Context& ctx, const DispatchPlan& plan, const ThinRows& rows, const Factor& factor,
               const Tensor& result) {
  const std::int64_t choices = plan.order.elements(), rank = factor.rank(), columns = factor.columns();
  const ArenaScope scope(*ctx.arena);
  const Tensor tiles = tile_table(ctx, plan);
  const ThinGemm product{rows.values.raw(),
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
      launch_dependent(ctx, kernel, grid, threads, 0, product);
    });
  });
}

void thin_gradients(Context& ctx, const DispatchPlan& plan, std::span<const ThinGradient> gradients) {
  if (gradients.empty()) return;
  if (gradients.size() > max_gradients)
    failed(Code::size_unsupported, "at most two gradients of factors share a launch");
  const ArenaScope scope(*ctx.arena);
  const Tensor tiles = tile_table(ctx, plan);
  const std::int64_t max_tiles = tile_table_entries(plan.order.elements(), plan.experts) - 1;
  const std::int64_t rank = gradients[0].low.dim(1);
  GradientsOf all{};
  bool tensor_cores = ctx.compute == DType::bf16;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const ThinGradient& one = gradients[i];
    const std::int64_t columns = one.target.dim(one.first ? 2 : 1);
    all.of[i] = {one.rows.values.raw(),
                 one.low.raw(),
                 static_cast<const Tile*>(tiles.raw()),
                 plan.order.data<std::int32_t>(),
                 one.gates,
                 floats(ctx.scratch({max_tiles, rank * columns}, DType::f32)),
                 floats(one.target),
                 one.rows.gather,
                 static_cast<int>(rank),
                 static_cast<int>(columns),
                 one.first};
    tensor_cores = tensor_cores && !one.gelu && one.gates == nullptr && columns % 8 == 0 && aligned16(all.of[i].rows);
  }
  const auto share = [&](auto&& blocks_of) {
    all.blocks = static_cast<int>(blocks_of(all.of[0]));
    all.both = all.blocks + (gradients.size() > 1 ? static_cast<int>(blocks_of(all.of[1])) : 0);
  };
  if (tensor_cores) {
    share([](const GradientOf& one) { return grid_for(one.columns, part_columns); });
    const dim3 grid(static_cast<unsigned>(all.both * max_tiles), 1, grid_for(rank, part_ranks));
    launch_dependent(ctx, warp_gradients_kernel, grid, part_threads, 0, all);
  } else {
    for (std::size_t i = 0; i < gradients.size(); ++i) add_rows(ctx, all.of[i], max_tiles, gradients[i].gelu);
  }
  share([&](const GradientOf& one) { return grid_for(rank * one.columns, threads); });
  const dim3 grid(static_cast<unsigned>(all.both), static_cast<unsigned>(plan.experts));
  launch_dependent(ctx, add_tiles_kernel, grid, threads, 0, all,
                   static_cast<const std::int32_t*>(plan.offsets.data<std::int32_t>()));
}

}  // namespace some::cuda
