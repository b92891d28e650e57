// Grouped GEMM on Hopper: a persistent kernel in which one warpgroup loads and two multiply (wgmma). The two
// multiplying warpgroups alternate between 128x128 tiles, so that one runs the epilogue of its tile (GELU, stores)
// while the other multiplies.
//
// The tensor copy engine (TMA) loads both a and b. Gathered rows have a separate kernel (grouped_gemm_resident.cu)
// unless they are too deep for it; then the rows of a are fetched by 16-byte asynchronous copies from the rows that the
// routing slots point to. Two alternatives were measured to be slower: one TMA box per gathered row (63 TFLOP/s), and
// signaling gathered stages from the loading threads after a proxy fence (320 TFLOP/s, because the fence waits for
// every copy still in flight). The fence is therefore in the multiplying warps. Tiles run through the columns first and
// then through the rows of a group, so that a group's matrix stays in L2.
//
// Measured on one H200 in bf16, 98304 rows in 64 groups (bench_cuda_ops): 625 TFLOP/s for 512 -> 1024 and 667 for 1024
// -> 512, with the tensor cores 78% busy; cuBLAS reaches 551 and 613 on dense GEMMs of the same size, and 796 on
// 8192^3. An epilogue that runs concurrently with a GEMM costs its instructions and its passes through shared memory.
// For 512 -> 1024, in thousands of cycles: a plain store 255 through shared memory and 240 woven (see Columns); GELU
// 398 through shared memory with a polynomial of degree 7, and 326 woven with one of degree 2; GELU' 535 and 504 (its
// matrix cannot be woven). Running the epilogue in a loop of four equal parts, to relieve the instruction cache, gained
// nothing.
#include "kernels/cuda/launch.cuh"
#include "kernels/gemm/grouped_gemm_hopper_epilogue.cuh"
#include "kernels/hopper/tile_load.cuh"

namespace some::cuda {
namespace {

constexpr int stage_bytes = a_bytes + b_bytes;
constexpr int stages = 6;
constexpr int threads = 384;
constexpr int shared_bytes = 1024 + stages * stage_bytes + 8 * 2 * staging_bytes + 2 * 8 * stages;

enum class Load { rows, copies };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A stage is `full` once its data has arrived and `empty` once it has been used.
struct Pipeline {
  std::uint32_t data, staging, barriers;
  __device__ std::uint32_t full(int stage) const { return barriers + 8 * stage; }
  __device__ std::uint32_t empty(int stage) const { return barriers + 8 * (stages + stage); }
};

__device__ __forceinline__ void advance(int& stage, int& parity) {
  if (++stage == stages) {
    stage = 0;
    parity ^= 1;
  }
}

// Loads all tiles through TMA from a single warp.
template <Columns kColumns, Epilogue kEpilogue>
__device__ __forceinline__ void load_tiles(const CUtensorMap* map_a, const CUtensorMap* map_b,
                                           const GemmArguments& arguments, const Pipeline& pipeline, int tiles,
                                           int steps) {
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  int stage = 0, parity = 1;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    const int first_column = (index % arguments.column_tiles) * block_columns;
    if constexpr (reads_result(kEpilogue)) prefetch_result<4, 32>(arguments, tile, first_column, lane);
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(pipeline.empty(stage), parity);
      if (lane == 0) {
        const std::uint32_t a_base = pipeline.data + stage * stage_bytes;
        mbarrier_expect_bytes(pipeline.full(stage), stage_bytes);
        tma_load_box(a_base, map_a, pipeline.full(stage), step * block_depth, tile.begin, 0);
        load_matrix<kColumns>(map_b, a_base + a_bytes, pipeline.full(stage), step * block_depth, first_column,
                              tile.group, arguments.columns);
      }
      __syncwarp();
      advance(stage, parity);
    }
  }
}

// Fetches gathered rows by 16-byte copies from all four loading warps; a stage is full when every thread's copies have
// arrived.
template <Columns kColumns, Epilogue kEpilogue>
__device__ __forceinline__ void load_copies(const CUtensorMap* map_b, const GemmArguments& arguments,
                                            const Pipeline& pipeline, int tiles, int steps) {
  const int thread = threadIdx.x, piece = thread & 7;
  int stage = 0, parity = 1;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    const int first_column = (index % arguments.column_tiles) * block_columns;
    const bf16* rows[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int j = min(tile.begin + (thread >> 3) + 16 * i, tile.end - 1);
      rows[i] = static_cast<const bf16*>(arguments.a) +
                static_cast<std::int64_t>(source_row(arguments, j)) * arguments.depth + piece * 8;
    }
    if constexpr (reads_result(kEpilogue)) prefetch_result<1, 128>(arguments, tile, first_column, thread);
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(pipeline.empty(stage), parity);
      const std::uint32_t a_base = pipeline.data + stage * stage_bytes;
      const int start = step * block_depth;
      if (thread == 0) {
        mbarrier_expect_bytes(pipeline.full(stage), b_bytes);
        load_matrix<kColumns>(map_b, a_base + a_bytes, pipeline.full(stage), start, first_column, tile.group,
                              arguments.columns);
      }
      const bool valid = start + piece * 8 < arguments.depth;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int row = (thread >> 3) + 16 * i;
        cp_async(a_base + row * 128 + ((piece ^ (row & 7)) << 4), valid ? rows[i] + start : rows[i], valid);
      }
      mbarrier_arrive_after_cp_async(pipeline.full(stage));
      advance(stage, parity);
    }
  }
  cp_async_commit();
  cp_async_wait<0>();
}

// Multiplies kBlocks blocks of 64 rows; one block suffices for a tile that has at most 64 rows.
template <Load kLoad, Columns kColumns, int kBlocks>
__device__ __forceinline__ void multiply_tile(float (&sums)[2][64], const Pipeline& pipeline, int& stage, int& parity,
                                              int steps, int lane) {
  constexpr int kTransposed = kColumns == Columns::transposed;
  int previous = -1;
  for (int step = 0; step < steps; ++step) {
    mbarrier_wait(pipeline.full(stage), parity);
    if constexpr (kLoad == Load::copies) fence_proxy_async();
    const std::uint32_t a_base = pipeline.data + stage * stage_bytes;
    const std::uint64_t a_place = wgmma_descriptor(a_base, 1024, 16);
    const std::uint64_t b_place = wgmma_descriptor(a_base + a_bytes, 1024, kTransposed ? b_bytes / 2 : 16);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < block_depth / 16; ++part) {
      const std::uint64_t b_part = b_place + (kTransposed ? part * (16 * 128 >> 4) : part * (32 >> 4));
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const std::uint64_t a_part = a_place + block * (64 * 128 >> 4) + part * (32 >> 4);
        wgmma_64x128<kTransposed>(sums[block], a_part, b_part, step > 0 || part > 0);
      }
    }
    wgmma_commit();
    wgmma_wait<1>();  // the previous step's operands have been read, so its stage can be refilled
    if (previous >= 0 && lane == 0) mbarrier_arrive(pipeline.empty(previous));
    previous = stage;
    advance(stage, parity);
  }
}

template <Load kLoad, Columns kColumns, Epilogue kEpilogue, bool kCorrected>
__device__ __forceinline__ void multiply_tiles(const GemmArguments& arguments, const Pipeline& pipeline, int tiles,
                                               int steps) {
  const int group = threadIdx.x / 128 - 1, lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
  const std::uint32_t staging = pipeline.staging + (group * 4 + warp) * 2 * staging_bytes;
  int stage = 0, parity = 0, turn = 0;
  if (group == 1 && static_cast<int>(blockIdx.x) < tiles) named_arrive(1, 256);
  for (int index = blockIdx.x; index < tiles; index += gridDim.x, turn ^= 1) {
    if (turn != group) {  // the other warpgroup's tile: skip its stages
      for (stage += steps; stage >= stages; stage -= stages) parity ^= 1;
      continue;
    }
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    const int column_tile = index % arguments.column_tiles;
    WarpTile<kEpilogue, kColumns == Columns::woven, 2, kCorrected> share{
        arguments, tile.begin + warp * 16, tile.end, column_tile * block_columns, column_tile, staging, lane,
        tile.group};
    share.start();
    float sums[2][64];
    named_sync(1 + group, 256);
    if (tile.end - tile.begin > 64) {
      multiply_tile<kLoad, kColumns, 2>(sums, pipeline, stage, parity, steps, lane);
    } else {
      multiply_tile<kLoad, kColumns, 1>(sums, pipeline, stage, parity, steps, lane);
    }
    if (index + static_cast<int>(gridDim.x) < tiles) named_arrive(1 + (group ^ 1), 256);
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(pipeline.empty(stage == 0 ? stages - 1 : stage - 1));
    share.finish(sums);
  }
}

#endif

template <Load kLoad, Columns kColumns, Epilogue kEpilogue, bool kCorrected>
__global__ void __launch_bounds__(threads, 1)
    hopper_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                  const __grid_constant__ GemmArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  Pipeline pipeline;
  pipeline.data = (shared_address(memory) + 1023) & ~1023u;
  pipeline.staging = pipeline.data + stages * stage_bytes;
  pipeline.barriers = pipeline.staging + 8 * 2 * staging_bytes;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < stages; ++stage) {
      mbarrier_start(pipeline.full(stage), kLoad == Load::copies ? 129 : 1);
      mbarrier_start(pipeline.empty(stage), 4);  // one arrival per warp of the warpgroup that multiplies
    }
    fence_mbarrier_init();
    prefetch_map(&map_a);
    prefetch_map(&map_b);
  }
  __syncthreads();
  wait_previous_kernel();
  const int tiles = row_tile_count(arguments) * arguments.column_tiles;
  const int steps = (arguments.depth + block_depth - 1) / block_depth;
  if (threadIdx.x < 128) {
    if constexpr (kLoad == Load::copies) {
      release_registers<56>();
      load_copies<kColumns, kEpilogue>(&map_b, arguments, pipeline, tiles, steps);
    } else {
      release_registers<40>();
      load_tiles<kColumns, kEpilogue>(&map_a, &map_b, arguments, pipeline, tiles, steps);
    }
  } else {
    claim_registers<kLoad == Load::copies ? 224 : 232>();
    multiply_tiles<kLoad, kColumns, kEpilogue, kCorrected>(arguments, pipeline, tiles, steps);
  }
#endif
}

template <Load kLoad, Columns kColumns, Epilogue kEpilogue, bool kCorrected>
void launch_kernel(Context& ctx, const GroupedGemm& product) {
  const GemmArguments arguments = arguments_of(product, block_columns, block_columns);
  const CUtensorMap map_b = describe_matrices<kColumns>(product);
  const CUtensorMap map_a =
      kLoad == Load::rows ? describe(product.a, product.depth, product.rows, 1, tile_rows) : map_b;
  const auto kernel = hopper_kernel<kLoad, kColumns, kEpilogue, kCorrected>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const std::int64_t most = (tile_table_entries(product.rows, product.groups) - 1) * arguments.column_tiles;
  const unsigned grid = static_cast<unsigned>(std::min<std::int64_t>(ctx.cuda->multiprocessors, most));
  launch_dependent(ctx, kernel, grid, threads, shared_bytes, map_a, map_b, arguments);
}

template <Load kLoad, Columns kColumns, Epilogue kEpilogue>
void launch(Context& ctx, const GroupedGemm& product) {
  if constexpr (supports_correction(kEpilogue)) {
    if (product.rank > 0) return launch_kernel<kLoad, kColumns, kEpilogue, true>(ctx, product);
  }
  launch_kernel<kLoad, kColumns, kEpilogue, false>(ctx, product);
}

template <Load kLoad, Columns kColumns>
void launch_epilogue(Context& ctx, const GroupedGemm& product) {
  switch (product.finish) {
    case Epilogue::store: return launch<kLoad, kColumns, Epilogue::store>(ctx, product);
    case Epilogue::gelu: return launch<kLoad, kColumns, Epilogue::gelu>(ctx, product);
    case Epilogue::gelu_slope: return launch<kLoad, kColumns, Epilogue::gelu_slope>(ctx, product);
    case Epilogue::gelu_backward:
      if constexpr (kColumns != Columns::woven) return launch<kLoad, kColumns, Epilogue::gelu_backward>(ctx, product);
      break;
    case Epilogue::slope_backward:
      if constexpr (kColumns != Columns::woven) return launch<kLoad, kColumns, Epilogue::slope_backward>(ctx, product);
      break;
  }
}

template <Load kLoad>
void launch_load(Context& ctx, const GroupedGemm& product) {
  if (product.b_transposed) return launch_epilogue<kLoad, Columns::transposed>(ctx, product);
  if constexpr (kLoad == Load::rows) {
    if (product.columns % 32 == 0 && !reads_result(product.finish)) {
      return launch_epilogue<kLoad, Columns::woven>(ctx, product);
    }
  }
  return launch_epilogue<kLoad, Columns::rows>(ctx, product);
}

}  // namespace

void launch_warpgroup(Context& ctx, const GroupedGemm& product) {
  if (product.gather != 0 ? launch_resident(ctx, product) : launch_wide(ctx, product)) return;
  return product.gather == 0 ? launch_load<Load::rows>(ctx, product) : launch_load<Load::copies>(ctx, product);
}

}  // namespace some::cuda
