// The grouped product on Hopper in tiles of 128 x 256: for products without a gather, a finish or a correction, which
// is what goes back through the experts' first matrix. Two warpgroups have 64 rows each.
//
// For 64 terms a tile takes 1,024 cycles of the tensor cores and as many of shared memory, where two tiles of 128 x 128
// take 1,280 of the latter: per product of 64 x 256, a is read once. That outweighs that a tile's stores, here, have no
// other warpgroup's products to hide behind: its next stages are loaded meanwhile.
#include "ops/cuda_launch.cuh"
#include "ops/grouped_gemm_hopper_load.cuh"
#include "ops/hopper_stages.cuh"

namespace some::ops::cuda {
namespace {

constexpr int tile_columns = 2 * block_columns;
constexpr int stages = 4;
constexpr int stage_bytes = a_bytes + 2 * b_bytes;
constexpr int shared_bytes = stages_room<stages, stage_bytes>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using Ring = Stages<stages, stage_bytes>;

__device__ __forceinline__ void load_tiles(const CUtensorMap* map_a, const CUtensorMap* map_b,
                                           const ProductArguments& arguments, int tiles, int steps, Ring stage) {
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    const int column = index % arguments.column_tiles * tile_columns;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(stage.empty(stage.stage), stage.parity);
      const std::uint32_t target = stage.at(stage.stage), barrier = stage.full(stage.stage);
      barrier_expect(barrier, stage_bytes);
      copy_box(target, map_a, barrier, step * block_depth, tile.begin, 0);
      for (int part = 0; part < 2; ++part) {
        load_matrix<Columns::transposed>(map_b, target + a_bytes + part * b_bytes, barrier, step * block_depth,
                                         column + part * block_columns, tile.group, arguments.columns);
      }
      stage.advance();
    }
  }
}

// Stores 16 rows of 256 columns, this lane's first row and column being `row` and `column`.
__device__ __forceinline__ void store_tile(const float (&sums)[2][64], const ProductArguments& arguments, int row,
                                           int end, int column, int lane) {
  bf16* const result = static_cast<bf16*>(arguments.result);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int m = row + (i >> 2 & 1) * 8, n = column + (i >> 3) * 128 + (i & 3) * 32;
    const float* const first = sums[i >> 3] + 16 * (i & 3) + 2 * (i >> 2 & 1);
    std::uint32_t pieces[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) pieces[p] = pack(first[4 * p], first[4 * p + 1]);
    transpose_quad(pieces, lane);
    if (m < end) {
      *reinterpret_cast<uint4*>(result + static_cast<std::int64_t>(m) * arguments.columns + n) =
          make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
    }
  }
}

__device__ __forceinline__ void multiply_tiles(const ProductArguments& arguments, int tiles, int steps, Ring stage) {
  const int half = threadIdx.x / 128 - 1, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    if (tile.begin + half * 64 >= tile.end) {  // no rows for this warpgroup: it only releases the stages
      for (int step = 0; step < steps; ++step) {
        barrier_wait(stage.full(stage.stage), stage.parity);
        if (lane == 0) barrier_arrive(stage.empty(stage.stage));
        stage.advance();
      }
      continue;
    }
    float sums[2][64];
    multiply_stages<1, true>(sums, stage, steps, half, lane);
    store_tile(sums, arguments, tile.begin + half * 64 + warp * 16 + (lane >> 2), tile.end,
               index % arguments.column_tiles * tile_columns + (lane & 3) * 8, lane);
  }
}

#endif

__global__ void __launch_bounds__(ring_threads, 1)
    wide_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ ProductArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const int steps = (arguments.depth + block_depth - 1) / block_depth;
  const auto tiles = [&] { return row_tile_count(arguments) * arguments.column_tiles; };
  load_and_multiply<Ring>(
      memory, [&](const Ring& stage) { load_tiles(&map_a, &map_b, arguments, tiles(), steps, stage); },
      [&](const Ring& stage) { multiply_tiles(arguments, tiles(), steps, stage); });
#endif
}

}  // namespace

bool launch_wide(Context& ctx, const GroupedProduct& product) {
  if (product.gather != 0 || !product.b_transposed || product.finish != Finish::store || product.rank > 0 ||
      product.columns % tile_columns != 0)
    return false;
  const ProductArguments arguments = arguments_of(product, tile_columns, tile_columns);
  const std::int64_t most = (tile_table_entries(product.rows, product.groups) - 1) * arguments.column_tiles;
  if (most < ctx.cuda->multiprocessors) return false;  // smaller tiles occupy more of them
  const CUtensorMap map_a = describe(product.a, product.depth, product.rows, 1, tile_rows);
  const CUtensorMap map_b = describe_matrices<Columns::transposed>(product);
  SOME_CUDA_CHECK(cudaFuncSetAttribute(wide_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  launch_behind(ctx, wide_kernel, static_cast<unsigned>(ctx.cuda->multiprocessors), ring_threads, shared_bytes, map_a,
                map_b, arguments);
  return true;
}

}  // namespace some::ops::cuda
