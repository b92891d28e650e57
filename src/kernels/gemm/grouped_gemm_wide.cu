// Grouped GEMM on Hopper in tiles of 128 x 256, for GEMMs without a gather or an epilogue: the input gradient of the
// experts' first matrix. Two warpgroups have 64 rows each.
//
// For 64 terms a tile takes 1,024 cycles of the tensor cores and as many of shared memory, whereas two tiles of 128 x
// 128 take 1,280 of the latter: an MMA of 64 x 256 reads a only once.
//
// The rows of `low` of a low-rank correction are also computed here, from the same stages: eight more columns of the
// GEMM.
#include "kernels/cuda/launch.cuh"
#include "kernels/gemm/grouped_gemm_resident.cuh"
#include "kernels/gemm/low_rank_epilogue.cuh"
#include "kernels/hopper/pipeline.cuh"
#include "kernels/hopper/tile_load.cuh"

namespace some::cuda {
namespace {

constexpr int tile_columns = 2 * block_columns;
constexpr int stages = 4;
constexpr int operand_bytes = a_bytes + 2 * b_bytes;
template <bool kCorrected>
inline constexpr int stage_bytes = operand_bytes + (kCorrected ? ranks_bytes : 0);
template <bool kCorrected>
inline constexpr int shared_bytes = ring_bytes<stages, stage_bytes<kCorrected>>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <bool kCorrected>
using Ring = Stages<stages, stage_bytes<kCorrected>>;

template <bool kCorrected>
__device__ __forceinline__ void load_tiles(const CUtensorMap* map_a, const CUtensorMap* map_b,
                                           const GemmArguments& arguments, int tiles, int steps,
                                           Ring<kCorrected> stage) {
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    const int column = index % arguments.column_tiles * tile_columns;
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(stage.empty(stage.stage), stage.parity);
      const std::uint32_t target = stage.at(stage.stage), barrier = stage.full(stage.stage);
      mbarrier_expect_bytes(barrier, operand_bytes);
      tma_load_box(target, map_a, barrier, step * block_depth, tile.begin, 0);
      for (int part = 0; part < 2; ++part) {
        load_matrix<Columns::transposed>(map_b, target + a_bytes + part * b_bytes, barrier, step * block_depth,
                                         column + part * block_columns, tile.group, arguments.columns);
      }
      stage.advance();
    }
  }
}

// Adds the factor that computes `low` to each stage, transposed as the tensor cores need it; its ranks are adjacent in
// memory, and too few for TMA. Run by one warp, which requests the next stage's part while it waits.
__device__ __forceinline__ void fill_ranks(const GemmArguments& arguments, int tiles, int steps, Ring<true> stage) {
  const int lane = threadIdx.x & 31, rank = arguments.rank, depth = arguments.depth;
  for (int i = 0; i < stages; ++i) {  // nonexistent ranks stay zero
#pragma unroll
    for (int at = 0; at < ranks_bytes; at += 32 * 16)
      store_shared(stage.at(i) + operand_bytes + at + lane * 16, make_uint4(0, 0, 0, 0));
  }
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    const bf16* const inner =
        static_cast<const bf16*>(arguments.inner) + static_cast<std::int64_t>(tile.group) * depth * rank;
    for (int step = 0; step < steps; ++step) {
      std::uint32_t values[2][max_ranks];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int term = step * block_depth + half * 32 + lane;
#pragma unroll
        for (int r = 0; r < max_ranks; ++r)
          values[half][r] = r < rank && term < depth ? request_half(inner + term * rank + r) : 0u;
      }
      mbarrier_wait(stage.empty(stage.stage), stage.parity);
      const std::uint32_t target = stage.at(stage.stage) + operand_bytes;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int term = half * 32 + lane;
#pragma unroll
        for (int r = 0; r < max_ranks; ++r) {
          if (r < rank) store_shared_half(target + r * 128 + ((term >> 3 ^ r) << 4) + (term & 7) * 2, values[half][r]);
        }
      }
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(stage.full(stage.stage));
      stage.advance();
    }
  }
}

template <bool kCorrected>
__device__ __forceinline__ void multiply_tiles(const GemmArguments& arguments, int tiles, int steps,
                                               Ring<kCorrected> stage) {
  constexpr int factor_tiles = tile_columns / 8;
  const int half = threadIdx.x / 128 - 1, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  DeferredTile<false> held(arguments);
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    if (tile.begin + half * 64 >= tile.end) {  // no rows for this warpgroup: it only releases the stages
      if constexpr (!kCorrected) held.store(arguments, lane);
      for (int step = 0; step < steps; ++step) {
        mbarrier_wait(stage.full(stage.stage), stage.parity);
        if (lane == 0) mbarrier_arrive(stage.empty(stage.stage));
        stage.advance();
      }
      continue;
    }
    const int row = tile.begin + half * 64 + warp * 16, column = index % arguments.column_tiles * tile_columns;
    const TilePart<false> share(arguments, row, tile.end, column, lane);
    float sums[2][64];
    if constexpr (kCorrected) {
      std::uint32_t factor[factor_tiles], low[2];
      request_factor<false>(factor, arguments, tile.group, column, lane);
      float ranks[4];
      multiply_stages<1, true>(sums, stage, steps, half, lane,
                               [&](std::uint64_t left, std::uint32_t base, int part, int add) {
                                 const std::uint64_t place = wgmma_descriptor(base + operand_bytes, 1024, 16);
                                 wgmma_64x8<0>(ranks, left, place + part * (32 >> 4), add);
                               });
      refine(ranks);
      low_of(low, ranks);
      if (column == 0) store_low(low, arguments, row, tile.end, lane);
      add_requested<0, factor_tiles / 2>(sums[0], low, factor);
      add_requested<factor_tiles / 2, factor_tiles / 2>(sums[1], low, factor);
      share.store(arguments, sums, lane);
    } else {
      multiply_stages<1, true>(sums, stage, steps, half, lane, NoOp(), [&] { held.store(arguments, lane); });
      held.hold(share, sums);
    }
  }
  if constexpr (!kCorrected) held.store(arguments, lane);
}

#endif

template <bool kCorrected>
__global__ void __launch_bounds__(ring_threads, 1)
    wide_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ GemmArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  using Own = Ring<kCorrected>;
  const int steps = (arguments.depth + block_depth - 1) / block_depth;
  const auto tiles = [&] { return row_tile_count(arguments) * arguments.column_tiles; };
  const auto load = [&](const Own& stage) { load_tiles<kCorrected>(&map_a, &map_b, arguments, tiles(), steps, stage); };
  const auto multiply = [&](const Own& stage) { multiply_tiles<kCorrected>(arguments, tiles(), steps, stage); };
  if constexpr (kCorrected) {
    run_producer_consumer<Own>(memory, load, multiply,
                               [&](const Own& stage) { fill_ranks(arguments, tiles(), steps, stage); });
  } else {
    run_producer_consumer<Own>(memory, load, multiply);
  }
#endif
}

template <bool kCorrected>
void launch(Context& ctx, const GroupedGemm& product) {
  const GemmArguments arguments = arguments_of(product, tile_columns, tile_columns);
  const CUtensorMap map_a = describe(product.a, product.depth, product.rows, 1, tile_rows);
  const CUtensorMap map_b = describe_matrices<Columns::transposed>(product);
  const auto kernel = wide_kernel<kCorrected>;
  constexpr int shared = shared_bytes<kCorrected>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  launch_dependent(ctx, kernel, static_cast<unsigned>(ctx.cuda->multiprocessors), ring_threads, shared, map_a, map_b,
                   arguments);
}

}  // namespace

bool uses_wide_tiles(const Context& ctx, const GroupedGemm& product) {
  if (product.gather != 0 || !product.b_transposed || product.finish != Epilogue::store || product.rank > max_ranks ||
      product.columns % tile_columns != 0 || (product.rank > 0 && product.inner == nullptr))
    return false;
  const std::int64_t most = (tile_table_entries(product.rows, product.groups) - 1) * (product.columns / tile_columns);
  return most >= ctx.cuda->multiprocessors;  // smaller tiles occupy more multiprocessors
}

bool launch_wide(Context& ctx, const GroupedGemm& product) {
  if (!uses_wide_tiles(ctx, product)) return false;
  product.rank > 0 ? launch<true>(ctx, product) : launch<false>(ctx, product);
  return true;
}

}  // namespace some::cuda
