// Grouped GEMM on Hopper for rows that are at most 512 deep: the experts' first matrix, forward and backward, whose
// rows are gathered while they are loaded.
//
// A tile of 128 whole rows stays in shared memory while the columns of the matrix stream past it. Each row is thus
// fetched once instead of once per 128 columns, by 16-byte copies from the rows that the routing slots point to; only
// the matrices are streamed (by TMA). This helps beyond the gathering: a GEMM of 128x128x64 occupies the tensor cores
// for 512 cycles, during which they read 48 KiB of shared memory. Loading both operands would write another 32 KiB, and
// at 128 bytes per cycle that makes 640 cycles; with the rows resident only 16 KiB are written.
//
// One warp streams matrices, two gather rows, one announces their arrival, and two pairs of warpgroups multiply
// (wgmma), with 64 rows per warpgroup: one pair runs its tile's epilogue (GELU, stores) while the other multiplies. As
// long as there is a whole row of tiles for every block, the blocks take whole rows one after another, so that those
// running at the same time share an expert's matrix in L2. The rest is divided by rows if that does not take longer,
// and otherwise into equal runs of tiles. GEMMs without an epilogue have a kernel with larger tiles (below).
//
// Measured on one H200 with 98304 rows in 64 groups, 512 -> 1024: 230 us with GELU and 286 to 307 with its derivative.
// Gathering first and then loading by TMA took 214 and 321, plus the time for the gathering. Of its 420 thousand cycles
// forward, a pair spends 180 in the epilogue, 4 to 28 waiting for rows, 32 waiting for matrices and 20 to 48 waiting
// for its turn. The epilogue is bound by arithmetic: without the GELU it takes half as long, without its stores two
// thirds; backward, 40% and 95%. A branch between the copies of gathered rows made a pair wait 68 thousand cycles for
// rows.
#include "kernels/cuda/launch.cuh"
#include "kernels/gemm/grouped_gemm_hopper_epilogue.cuh"
#include "kernels/gemm/grouped_gemm_resident.cuh"
#include "kernels/gemm/low_rank_epilogue.cuh"
#include "kernels/hopper/pipeline.cuh"
#include "kernels/hopper/tile_load.cuh"

namespace some::cuda {
namespace {

constexpr int max_steps = 8;
constexpr int threads = 640;
constexpr int pair_threads = 256, pair_warps = pair_threads / 32;

// Layout of shared memory: stages for streaming a matrix, each with kBlocks times 128 columns, and kStaging bytes for
// each warp whose epilogue goes through shared memory.
template <int kStages, int kBlocks, int kStaging>
struct Layout {
  static constexpr int stages = kStages, blocks = kBlocks, staging = kStaging;
  static constexpr int stage_bytes = kBlocks * b_bytes;
  static constexpr int bytes = 1024 + max_steps * a_bytes + kStages * stage_bytes + 2 * pair_warps * kStaging +
                               8 * (3 * max_steps + 2 * kStages);
};
template <Epilogue kEpilogue>
using LayoutOf = Layout<reads_result(kEpilogue) ? 4 : 6, 1, reads_result(kEpilogue) ? staging_bytes : 0>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int gathering_warps = 2;

// Addresses in shared memory. Rows are `copied` once they have arrived; rows and stages are `full` once the tensor
// cores may read them and `empty` once they have been used.
//
// A warpgroup without rows in a tile only releases its stages, without waiting for rows, and may thus be ahead of the
// other. At most as many stages as steps are used, so that it cannot be a whole tile ahead. A warpgroup that has found
// a step's stage full therefore knows that the same step of the previous tile is done, and which of the barrier's two
// phases to wait for. So it must wait for the stage first and for the rows after that. Rows must be released before the
// stage is.
template <typename Room>
struct Places {
  static constexpr int stages = Room::stages;
  std::uint32_t base;
  int steps, used;
  __device__ Places(unsigned char* memory, int depth)
      : base((shared_address(memory) + 1023) & ~1023u),
        steps((depth + block_depth - 1) / block_depth),
        used(min(stages, steps)) {}
  __device__ std::uint32_t rows(int step) const { return base + step * a_bytes; }
  __device__ std::uint32_t matrix(int stage) const { return rows(max_steps) + stage * Room::stage_bytes; }
  __device__ std::uint32_t staging(int warp) const { return matrix(stages) + warp * Room::staging; }
  __device__ std::uint32_t rows_full(int step) const { return staging(2 * pair_warps) + 8 * step; }
  __device__ std::uint32_t rows_empty(int step) const { return rows_full(max_steps + step); }
  __device__ std::uint32_t rows_copied(int step) const { return rows_full(2 * max_steps + step); }
  __device__ std::uint32_t full(int stage) const { return rows_full(3 * max_steps + stage); }
  __device__ std::uint32_t empty(int stage) const { return full(stages + stage); }
  __device__ void advance(int& stage, int& parity) const {
    if (++stage == used) {
      stage = 0;
      parity ^= 1;
    }
  }
  // Initializes the barriers; called by one thread before the other threads use them.
  __device__ void start() const {
    for (int step = 0; step < steps; ++step) {
      mbarrier_start(rows_copied(step), 32 * gathering_warps);
      mbarrier_start(rows_full(step), 1);
      mbarrier_start(rows_empty(step), pair_warps);
    }
    for (int stage = 0; stage < used; ++stage) {
      mbarrier_start(full(stage), 1);
      mbarrier_start(empty(stage), pair_warps);
    }
    fence_mbarrier_init();
  }
};

// The order in which a block visits its tiles; the tiles of one row of tiles come one after another.
struct TileOrder {
  int column_tiles, whole, first, left;  // `whole` tiles form whole rows, the rest starts at number `first`
  int done = 0, row, column;
  __device__ TileOrder(int row_tiles, int columns) : column_tiles(columns) {
    const int grid = gridDim.x, block = blockIdx.x, rounds = row_tiles / grid, rows = row_tiles - rounds * grid;
    const int rest = rows * columns;
    int begin = rest * block / grid, end = rest * (block + 1) / grid;
    // If that does not take longer, the rest is also divided so that a block stays in one row: it gathers less, and
    // blocks that need the same part of a matrix need it at the same time.
    const int sharing = rows > 0 ? grid / rows : 1;
    if ((columns + sharing - 1) / sharing <= (rest + grid - 1) / grid) {
      const int row_begin = block / sharing * columns, part = block % sharing;
      begin = min(row_begin + columns * part / sharing, rest);
      end = min(row_begin + columns * (part + 1) / sharing, rest);
    }
    whole = rounds * columns;
    first = rounds * grid * columns + begin;
    left = whole + end - begin;
    row = whole > 0 ? block : first / columns;
    column = whole > 0 ? 0 : first % columns;
  }
  __device__ void advance() {
    --left;
    if (++done == whole) {
      row = first / column_tiles;
      column = first % column_tiles;
    } else if (++column == column_tiles) {
      column = 0;
      row += done < whole ? gridDim.x : 1;
    }
  }
  __device__ bool last_of_row() const {
    TileOrder next = *this;
    next.advance();
    return next.left == 0 || next.row != row;
  }
  __device__ void next_row() {
    const int here = row;
    while (left > 0 && row == here) advance();
  }
};

// Loads the matrices of all tiles. kCorrected: each row of tiles is preceded by a stage with the factor that computes
// `low`, over its whole depth, one row per rank.
template <Columns kColumns, Epilogue kEpilogue, bool kCorrected, typename Room>
__device__ __forceinline__ void stream_matrices(const CUtensorMap* map_b, const CUtensorMap* map_inner,
                                                const GemmArguments& arguments, const Places<Room>& places,
                                                TileOrder walk) {
  const int lane = threadIdx.x & 31;
  int stage = 0, parity = 1, row = -1;
  Tile tile;
  const auto fill = [&](int bytes, auto&& load) {
    mbarrier_wait(places.empty(stage), parity);
    if (lane == 0) {
      mbarrier_expect_bytes(places.full(stage), bytes);
      load();
    }
    __syncwarp();
    places.advance(stage, parity);
  };
  for (; walk.left > 0; walk.advance()) {
    if (walk.row != row) {
      tile = row_tile(arguments, row = walk.row);
      if constexpr (kCorrected) {
        fill(places.steps * ranks_bytes, [&] {
          for (int step = 0; step < places.steps; ++step)
            tma_load_box(places.matrix(stage) + step * ranks_bytes, map_inner, places.full(stage), step * block_depth,
                         0, tile.group);
        });
      }
    }
    const int first_column = walk.column * Room::blocks * block_columns;
    if constexpr (reads_result(kEpilogue)) prefetch_result<4, 32>(arguments, tile, first_column, lane);
    for (int step = 0; step < places.steps; ++step) {
      fill(Room::stage_bytes, [&] {
#pragma unroll
        for (int block = 0; block < Room::blocks; ++block)
          load_matrix<kColumns>(map_b, places.matrix(stage) + block * b_bytes, places.full(stage), step * block_depth,
                                first_column + block * block_columns, tile.group, arguments.columns);
      });
    }
  }
}

// Gathers the rows of all tiles. Each warp takes every other group of four rows, with eight lanes per row. warp: 0 or
// 1.
template <typename Room>
__device__ __forceinline__ void gather_rows(const GemmArguments& arguments, const Places<Room>& places, TileOrder walk,
                                            int warp) {
  const int lane = threadIdx.x & 31, piece = lane & 7;
  const int first = 4 * warp + (lane >> 3);  // this lane takes every eighth row, starting here
  int parity = 1;
  for (; walk.left > 0; walk.next_row()) {
    const Tile tile = row_tile(arguments, walk.row);
    const int rows = tile.end - tile.begin;
    int sources[2];  // lane l keeps those of this warp's rows l and l + 32
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 64 * i + 8 * (lane >> 2) + 4 * warp + (lane & 3);
      sources[i] = source_row(arguments, tile.begin + min(row, rows - 1));
    }
    for (int step = 0; step < places.steps; ++step) {
      mbarrier_wait(places.rows_empty(step), parity);
      const int start = step * block_depth + piece * 8;
      const bool valid = start < arguments.depth;
      const bf16* const base = static_cast<const bf16*>(arguments.a) + (valid ? start : 0);
      const std::uint32_t target = places.rows(step) + first * 128 + ((piece ^ (first & 7)) << 4);
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // missing rows repeat the tile's last row: no branch between the copies
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int source = __shfl_sync(0xffffffffu, sources[half], 4 * i + (lane >> 3));
          cp_async(target + half * 64 * 128 + i * 8 * 128, base + static_cast<std::int64_t>(source) * arguments.depth,
                   valid);
        }
      }
      mbarrier_arrive_after_cp_async(places.rows_copied(step));
    }
    parity ^= 1;
  }
  cp_async_commit();
  cp_async_wait<0>();
}

// Makes gathered rows readable for the tensor cores. The fence waits for everything its own thread has in flight, so
// this warp issues it: unlike the warps that copy or multiply, it has nothing in flight.
template <typename Room>
__device__ __forceinline__ void publish_rows(const Places<Room>& places, TileOrder walk) {
  int parity = 0;
  for (; walk.left > 0; walk.next_row()) {
    for (int step = 0; step < places.steps; ++step) {
      mbarrier_wait(places.rows_copied(step), parity);
      fence_proxy_async();
      mbarrier_arrive(places.rows_full(step));
    }
    parity ^= 1;
  }
}

// Multiplies this warpgroup's 64 rows of a tile; the last step's MMAs are still in flight on return. fresh: the rows
// have arrived since this warpgroup's last tile; last: no other tile of this block needs them. meanwhile: called once,
// with the maximum number of MMAs in flight.
template <Columns kColumns, typename Room, int kBlocks, typename Meanwhile = NoOp>
__device__ __forceinline__ void multiply(float (&sums)[kBlocks][64], const Places<Room>& places, int half, int& stage,
                                         int& parity, int rows_parity, bool fresh, bool last, int lane,
                                         const Meanwhile& meanwhile = {}) {
  static_assert(kBlocks == Room::blocks && (kBlocks == 1 || kBlocks == 2));
  constexpr int kTransposed = kColumns == Columns::transposed;
  static_assert(kBlocks == 1 || !kTransposed);
  int previous = 0;
  for (int step = 0; step < places.steps; ++step) {
    mbarrier_wait(places.full(stage), parity);
    if (fresh) mbarrier_wait(places.rows_full(step), rows_parity);
    const std::uint64_t a_place = wgmma_descriptor(places.rows(step) + half * (a_bytes / 2), 1024, 16);
    const std::uint64_t b_place = wgmma_descriptor(places.matrix(stage), 1024, kTransposed ? b_bytes / 2 : 16);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < block_depth / 16; ++part) {
      const std::uint64_t a_part = a_place + part * (32 >> 4);
      const std::uint64_t b_part = b_place + (kTransposed ? part * (16 * 128 >> 4) : part * (32 >> 4));
      if constexpr (kBlocks == 1) {
        wgmma_64x128<kTransposed>(sums[0], a_part, b_part, step > 0 || part > 0);
      } else {
        wgmma_64x256<kTransposed>(sums[0], sums[1], a_part, b_part, step > 0 || part > 0);
      }
    }
    wgmma_commit();
    if (step == min(1, places.steps - 1)) meanwhile();
    wgmma_wait<1>();  // the previous step's operands have been read, so its stage can be refilled
    if (step > 0 && lane == 0) {
      if (last) mbarrier_arrive(places.rows_empty(step - 1));
      mbarrier_arrive(places.empty(previous));
    }
    previous = stage;
    places.advance(stage, parity);
  }
}

// Waits for the last step's MMAs and releases what they have read. stage: the stage after theirs.
template <typename Room>
__device__ __forceinline__ void end_products(const Places<Room>& places, int stage, bool last, int lane) {
  wgmma_wait<0>();
  if (lane == 0) {
    if (last) mbarrier_arrive(places.rows_empty(places.steps - 1));
    mbarrier_arrive(places.empty(stage == 0 ? places.used - 1 : stage - 1));
  }
}

// Releases the stages of a tile in which this warpgroup has no rows, as they become full.
template <typename Room>
__device__ __forceinline__ void pass_by(const Places<Room>& places, int& stage, int& parity, bool last, int lane) {
  for (int step = 0; step < places.steps; ++step) {
    mbarrier_wait(places.full(stage), parity);
    if (lane == 0) {
      if (last) mbarrier_arrive(places.rows_empty(step));
      mbarrier_arrive(places.empty(stage));
    }
    places.advance(stage, parity);
  }
}

template <Columns kColumns, Epilogue kEpilogue, bool kCorrected>
__device__ __forceinline__ void multiply_tiles(const GemmArguments& arguments,
                                               const Places<LayoutOf<kEpilogue>>& places, TileOrder walk) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
  const int pair = threadIdx.x / pair_threads, half = threadIdx.x / 128 & 1;
  int stage = 0, parity = 0, fills = 0, seen = 0;
  if (pair == 1 && walk.left > 0) named_arrive(1, 2 * pair_threads);
  for (; walk.left > 0; walk.advance()) {
    const bool last = walk.last_of_row();
    if ((walk.done & 1) != pair) {  // the other pair's tile: skip its stages
      for (stage += places.steps; stage >= places.used; stage -= places.used) parity ^= 1;
    } else {
      const Tile tile = row_tile(arguments, walk.row);
      WarpTile<kEpilogue, kColumns == Columns::woven, 1, kCorrected> warp_tile{
          arguments,   tile.begin + half * 64 + warp * 16, tile.end, walk.column * block_columns,
          walk.column, places.staging(threadIdx.x >> 5),   lane,     tile.group};
      warp_tile.start();
      float sums[1][64];
      named_sync(1 + pair, 2 * pair_threads);
      if (tile.begin + half * 64 < tile.end) {
        multiply<kColumns>(sums, places, half, stage, parity, fills & 1, seen <= fills, last, lane);
        seen = fills + 1;
        if (walk.left > 1) named_arrive(1 + (pair ^ 1), 2 * pair_threads);
        end_products(places, stage, last, lane);
        warp_tile.finish(sums);
      } else {
        pass_by(places, stage, parity, last, lane);
        if (walk.left > 1) named_arrive(1 + (pair ^ 1), 2 * pair_threads);
      }
    }
    fills += last ? 1 : 0;
  }
}

#endif

template <Columns kColumns, Epilogue kEpilogue, bool kCorrected>
__global__ void __launch_bounds__(threads, 1)
    resident_kernel(const __grid_constant__ CUtensorMap map_b, const __grid_constant__ GemmArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const Places<LayoutOf<kEpilogue>> places(memory, arguments.depth);
  if (threadIdx.x == 0) {
    places.start();
    prefetch_map(&map_b);
  }
  __syncthreads();
  wait_previous_kernel();
  const TileOrder walk(row_tile_count(arguments), arguments.column_tiles);
  if (threadIdx.x >= 2 * pair_threads) {
    release_registers<32>();
    if (threadIdx.x < 2 * pair_threads + 32) {
      stream_matrices<kColumns, kEpilogue, false>(&map_b, nullptr, arguments, places, walk);
    } else if (threadIdx.x >= 2 * pair_threads + 64) {
      gather_rows(arguments, places, walk, threadIdx.x / 32 - 2 * pair_warps - 2);
    } else if (threadIdx.x == 2 * pair_threads + 32) {
      publish_rows(places, walk);
    }
  } else {
    claim_registers<112>();
    multiply_tiles<kColumns, kEpilogue, kCorrected>(arguments, places, walk);
  }
#endif
}

// Kernel for epilogues that only store: tiles of 128 x 256 and one pair of warpgroups, with 128 sums per thread. An MMA
// of 64 x 256 reads its rows once, so that the tensor cores' 1,024 cycles for 128 x 256 x 64 take 896 of shared memory
// instead of 1,024. The rows of `low` of a low-rank correction are also computed here, as eight more columns, before
// the first tile of a row of tiles.
constexpr int wide_threads = 384;
using WideLayout = Layout<3, 2, 0>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Multiplies this warpgroup's rows by the factor in the stage that precedes a row of tiles.
__device__ __forceinline__ void multiply_ranks(float (&sums)[4], const Places<WideLayout>& places, int half, int& stage,
                                               int& parity, int rows_parity, int lane) {
  mbarrier_wait(places.full(stage), parity);
  for (int step = 0; step < places.steps; ++step) {
    mbarrier_wait(places.rows_full(step), rows_parity);
    const std::uint64_t a_place = wgmma_descriptor(places.rows(step) + half * (a_bytes / 2), 1024, 16);
    const std::uint64_t b_place = wgmma_descriptor(places.matrix(stage) + step * ranks_bytes, 1024, 16);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < block_depth / 16; ++part)
      wgmma_64x8<0>(sums, a_place + part * (32 >> 4), b_place + part * (32 >> 4), step > 0 || part > 0);
    wgmma_commit();
  }
  wgmma_wait<0>();
  refine(sums);
  if (lane == 0) mbarrier_arrive(places.empty(stage));
  places.advance(stage, parity);
}

template <bool kCorrected>
__device__ __forceinline__ void multiply_wide_tiles(const GemmArguments& arguments, const Places<WideLayout>& places,
                                                    TileOrder walk) {
  constexpr int factor_tiles = WideLayout::blocks * block_columns / 8;
  const int half = threadIdx.x / 128 - 1, warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
  int stage = 0, parity = 0, rows_parity = 0;
  bool fresh = true;  // the rows have arrived since the last tile
  std::uint32_t low[2];
  DeferredTile<true> held(arguments);
  for (; walk.left > 0; walk.advance()) {
    const bool last = walk.last_of_row();
    const Tile tile = row_tile(arguments, walk.row);
    const int row = tile.begin + half * 64 + warp * 16, column = walk.column * WideLayout::blocks * block_columns;
    if (tile.begin + half * 64 < tile.end) {
      const TilePart<true> share(arguments, row, tile.end, column, lane);
      float sums[WideLayout::blocks][64];
      std::uint32_t factor[kCorrected ? factor_tiles : 1];
      if constexpr (kCorrected) request_factor<true>(factor, arguments, tile.group, column, lane);
      if (kCorrected && fresh) {
        float ranks[4];
        multiply_ranks(ranks, places, half, stage, parity, rows_parity, lane);
        low_of(low, ranks);
        if (column == 0) store_low(low, arguments, row, tile.end, lane);
      }
      multiply<Columns::woven>(sums, places, half, stage, parity, rows_parity, fresh, last, lane, [&] {
        if constexpr (!kCorrected) held.store(arguments, lane);
      });
      end_products(places, stage, last, lane);
#pragma unroll
      for (auto& block : sums) refine(block);
      if constexpr (kCorrected) {
        add_requested<0, factor_tiles / 2>(sums[0], low, factor);
        add_requested<factor_tiles / 2, factor_tiles / 2>(sums[1], low, factor);
        share.store(arguments, sums, lane);
      } else {
        held.hold(share, sums);
      }
    } else {
      if constexpr (!kCorrected) held.store(arguments, lane);
      if (kCorrected && fresh) {
        mbarrier_wait(places.full(stage), parity);
        if (lane == 0) mbarrier_arrive(places.empty(stage));
        places.advance(stage, parity);
      }
      pass_by(places, stage, parity, last, lane);
    }
    fresh = last;
    rows_parity ^= last ? 1 : 0;
  }
  if constexpr (!kCorrected) held.store(arguments, lane);
}

#endif

template <bool kCorrected>
__global__ void __launch_bounds__(wide_threads, 1)
    wide_resident_kernel(const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_inner,
                         const __grid_constant__ GemmArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const Places<WideLayout> places(memory, arguments.depth);
  if (threadIdx.x == 0) {
    places.start();
    prefetch_map(&map_b);
  }
  __syncthreads();
  wait_previous_kernel();
  const TileOrder walk(row_tile_count(arguments), arguments.column_tiles);
  if (threadIdx.x < 128) {
    release_registers<40>();
    if (threadIdx.x < 32) {
      stream_matrices<Columns::woven, Epilogue::store, kCorrected>(&map_b, &map_inner, arguments, places, walk);
    } else if (threadIdx.x >= 64) {
      gather_rows(arguments, places, walk, threadIdx.x / 32 - 2);
    } else if (threadIdx.x == 32) {
      publish_rows(places, walk);
    }
  } else {
    claim_registers<232>();
    multiply_wide_tiles<kCorrected>(arguments, places, walk);
  }
#endif
}

template <bool kCorrected>
void launch_wide_kernel(Context& ctx, const GroupedGemm& product) {
  constexpr int columns = WideLayout::blocks * block_columns, shared = WideLayout::bytes;
  const GemmArguments arguments = arguments_of(product, columns, columns);
  const CUtensorMap map_b = describe_matrices<Columns::woven>(product);
  const CUtensorMap map_inner =
      kCorrected ? describe(product.inner, product.depth, product.rank, product.groups, max_ranks) : map_b;
  const auto kernel = wide_resident_kernel<kCorrected>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  launch_dependent(ctx, kernel, static_cast<unsigned>(ctx.cuda->multiprocessors), wide_threads, shared, map_b,
                   map_inner, arguments);
}

template <Columns kColumns, Epilogue kEpilogue, bool kCorrected>
void launch_kernel(Context& ctx, const GroupedGemm& product) {
  const GemmArguments arguments = arguments_of(product, block_columns, block_columns);
  const CUtensorMap map_b = describe_matrices<kColumns>(product);
  const auto kernel = resident_kernel<kColumns, kEpilogue, kCorrected>;
  constexpr int shared = LayoutOf<kEpilogue>::bytes;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  const std::int64_t most = (tile_table_entries(product.rows, product.groups) - 1) * arguments.column_tiles;
  const unsigned grid = static_cast<unsigned>(std::min<std::int64_t>(ctx.cuda->multiprocessors, most));
  launch_dependent(ctx, kernel, grid, threads, shared, map_b, arguments);
}

template <Columns kColumns, Epilogue kEpilogue>
void launch(Context& ctx, const GroupedGemm& product) {
  if constexpr (supports_correction(kEpilogue)) {
    if (product.rank > 0) return launch_kernel<kColumns, kEpilogue, true>(ctx, product);
  }
  launch_kernel<kColumns, kEpilogue, false>(ctx, product);
}

}  // namespace

bool uses_wide_resident_tiles(const Context& ctx, const GroupedGemm& product) {
  constexpr int columns = WideLayout::blocks * block_columns;
  if (product.depth > max_steps * block_depth || product.b_transposed || product.finish != Epilogue::store)
    return false;
  if (product.columns % columns != 0) return false;
  if (product.rank > max_ranks || (product.rank > 0 && product.inner == nullptr)) return false;
  const std::int64_t most = (tile_table_entries(product.rows, product.groups) - 1) * (product.columns / columns);
  return most >= ctx.cuda->multiprocessors;  // smaller tiles occupy more multiprocessors
}

bool launch_resident(Context& ctx, const GroupedGemm& product) {
  if (product.depth > max_steps * block_depth) return false;
  if (reads_result(product.finish)) {
    if (!product.b_transposed) return false;
    if (product.finish == Epilogue::gelu_backward) {
      launch<Columns::transposed, Epilogue::gelu_backward>(ctx, product);
    } else {
      launch<Columns::transposed, Epilogue::slope_backward>(ctx, product);
    }
    return true;
  }
  if (product.b_transposed || product.columns % 32 != 0) return false;
  if (product.finish == Epilogue::gelu) {
    launch<Columns::woven, Epilogue::gelu>(ctx, product);
  } else if (product.finish == Epilogue::gelu_slope) {
    launch<Columns::woven, Epilogue::gelu_slope>(ctx, product);
  } else if (!uses_wide_resident_tiles(ctx, product)) {
    launch<Columns::woven, Epilogue::store>(ctx, product);
  } else if (product.rank > 0) {
    launch_wide_kernel<true>(ctx, product);
  } else {
    launch_wide_kernel<false>(ctx, product);
  }
  return true;
}

}  // namespace some::cuda
