// The grouped product on Hopper for rows that are at most 512 deep: the experts' first product, forward and backward,
// whose rows are gathered while they are loaded.
//
// A tile of 128 whole rows stays in shared memory while the columns of the matrix stream past it. Each row is thus
// fetched once instead of once per 128 columns, by 16-byte copies from where the choices point; only the matrices are
// streamed (by the copy engine). This helps beyond the gathering: a product of 128x128x64 occupies the tensor cores for
// 512 cycles, during which they read 48 KiB of shared memory. Loading both operands would write another 32 KiB, and at
// 128 bytes per cycle that makes 640 cycles; with the rows resident only 16 KiB are written.
//
// One warp streams matrices, two gather rows, one announces their arrival, and two pairs of warpgroups multiply
// (wgmma), with 64 rows per warpgroup: one pair finishes its tile (GELU, stores) while the other multiplies. As long as
// there is a whole row of tiles for every block, blocks take whole rows in turn, so that those running at the same time
// share an expert's matrix in L2; what remains is divided by rows where that takes no longer, and otherwise into equal
// runs of tiles. Products without a finish have a kernel with larger tiles (below).
//
// Measured on one H200 with 98304 rows in 64 groups, 512 -> 1024: 230 us with GELU and 286 to 307 with its derivative.
// Gathering first and then loading by the copy engine took 214 and 321, plus the time for the gathering. Of its 420
// thousand cycles forward, a pair spends 180 finishing, 4 to 28 waiting for rows, 32 waiting for matrices and 20 to 48
// waiting for its turn. The epilogue is bound by arithmetic: without the GELU it takes half as long, without its stores
// two thirds; backward, 40% and 95%. A branch between the copies of gathered rows made a pair wait 68 thousand cycles
// for rows.
#include "ops/cuda_launch.cuh"
#include "ops/grouped_gemm_hopper_finish.cuh"
#include "ops/grouped_gemm_hopper_load.cuh"
#include "ops/hopper_stages.cuh"

namespace some::ops::cuda {
namespace {

constexpr int most_steps = 8;
constexpr int threads = 640;
constexpr int pair_threads = 256, pair_warps = pair_threads / 32;

// Stages for streaming a matrix, and the staging memory of each multiplying warp if the epilogue needs any.
template <Finish kFinish>
inline constexpr int stages_of = reads_result(kFinish) ? 4 : 6;
template <Finish kFinish>
inline constexpr int staging_of = reads_result(kFinish) ? staging_bytes : 0;
template <Finish kFinish>
inline constexpr int shared_of = 1024 + most_steps* a_bytes + stages_of<kFinish>* b_bytes +
                                 2 * pair_warps* staging_of<kFinish> + 8 * (3 * most_steps + 2 * stages_of<kFinish>);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int gathering_warps = 2;

// The layout of shared memory. Rows are `copied` once they have arrived; rows and stages are `full` once the tensor
// cores may read them and `empty` once they have been used. No more stages than steps are used, so that a tile's last
// product cannot be computed before that of the previous tile, which uses the same rows, is done.
template <Finish kFinish>
struct Places {
  static constexpr int stages = stages_of<kFinish>;
  std::uint32_t base;
  int steps, used;
  __device__ std::uint32_t rows(int step) const { return base + step * a_bytes; }
  __device__ std::uint32_t matrix(int stage) const { return rows(most_steps) + stage * b_bytes; }
  __device__ std::uint32_t staging(int warp) const { return matrix(stages) + warp * staging_of<kFinish>; }
  __device__ std::uint32_t rows_full(int step) const { return staging(2 * pair_warps) + 8 * step; }
  __device__ std::uint32_t rows_empty(int step) const { return rows_full(most_steps + step); }
  __device__ std::uint32_t rows_copied(int step) const { return rows_full(2 * most_steps + step); }
  __device__ std::uint32_t full(int stage) const { return rows_full(3 * most_steps + stage); }
  __device__ std::uint32_t empty(int stage) const { return full(stages + stage); }
  __device__ void advance(int& stage, int& parity) const {
    if (++stage == used) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The order in which a block visits its tiles; those of one row of tiles come one after another.
struct Walk {
  int column_tiles, whole, first, left;  // `whole` tiles form whole rows, the others start at number `first`
  int done = 0, row, column;
  __device__ Walk(int row_tiles, int columns) : column_tiles(columns) {
    const int grid = gridDim.x, block = blockIdx.x, rounds = row_tiles / grid, rows = row_tiles - rounds * grid;
    const int rest = rows * columns;
    int begin = rest * block / grid, end = rest * (block + 1) / grid;
    // Where it takes no longer, the rest too is divided so that a block stays in one row: it gathers less, and blocks
    // that need the same part of a matrix need it at the same time.
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
    Walk next = *this;
    next.advance();
    return next.left == 0 || next.row != row;
  }
  __device__ void next_row() {
    const int here = row;
    while (left > 0 && row == here) advance();
  }
};

// kBlocks: how many times 128 columns a tile has.
template <Columns kColumns, Finish kFinish, int kBlocks, typename Room>
__device__ __forceinline__ void stream_matrices(const CUtensorMap* map_b, const ProductArguments& arguments,
                                                const Room& places, Walk walk) {
  const int lane = threadIdx.x & 31;
  int stage = 0, parity = 1, row = -1;
  Tile tile;
  for (; walk.left > 0; walk.advance()) {
    if (walk.row != row) tile = row_tile(arguments, row = walk.row);
    const int first_column = walk.column * kBlocks * block_columns;
    if constexpr (reads_result(kFinish)) prefetch_result<4, 32>(arguments, tile, first_column, lane);
    for (int step = 0; step < places.steps; ++step) {
      barrier_wait(places.empty(stage), parity);
      if (lane == 0) {
        barrier_expect(places.full(stage), kBlocks * b_bytes);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          load_matrix<kColumns>(map_b, places.matrix(stage) + block * b_bytes, places.full(stage), step * block_depth,
                                first_column + block * block_columns, tile.group, arguments.columns);
        }
      }
      __syncwarp();
      places.advance(stage, parity);
    }
  }
}

// Each warp takes every other group of four rows, with eight lanes per row. warp: 0 or 1.
template <typename Room>
__device__ __forceinline__ void gather_rows(const ProductArguments& arguments, const Room& places, Walk walk,
                                            int warp) {
  const int lane = threadIdx.x & 31, piece = lane & 7;
  const int first = 4 * warp + (lane >> 3);  // this lane takes every eighth row from here on
  int parity = 1;
  for (; walk.left > 0; walk.next_row()) {
    const Tile tile = row_tile(arguments, walk.row);
    const int rows = tile.end - tile.begin;
    int sources[2];  // lane l keeps those of its warp's rows l and l + 32
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 64 * i + 8 * (lane >> 2) + 4 * warp + (lane & 3);
      sources[i] = source_row(arguments, tile.begin + min(row, rows - 1));
    }
    for (int step = 0; step < places.steps; ++step) {
      barrier_wait(places.rows_empty(step), parity);
      const int start = step * block_depth + piece * 8;
      const bool valid = start < arguments.depth;
      const bf16* const base = static_cast<const bf16*>(arguments.a) + (valid ? start : 0);
      const std::uint32_t target = places.rows(step) + first * 128 + ((piece ^ (first & 7)) << 4);
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // missing rows repeat the tile's last one: no branch between the copies
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int source = __shfl_sync(0xffffffffu, sources[half], 4 * i + (lane >> 3));
          copy_async(target + half * 64 * 128 + i * 8 * 128, base + static_cast<std::int64_t>(source) * arguments.depth,
                     valid);
        }
      }
      barrier_arrive_after_copies(places.rows_copied(step));
    }
    parity ^= 1;
  }
  copy_async_commit();
  copy_async_wait<0>();
}

// A fence makes what threads have written readable for the tensor cores, but it waits for everything its own thread has
// in flight. This warp has nothing in flight, unlike those that copy or multiply, so it issues the fence for them.
template <typename Room>
__device__ __forceinline__ void announce_rows(const Room& places, Walk walk) {
  int parity = 0;
  for (; walk.left > 0; walk.next_row()) {
    for (int step = 0; step < places.steps; ++step) {
      barrier_wait(places.rows_copied(step), parity);
      publish_shared();
      barrier_arrive(places.rows_full(step));
    }
    parity ^= 1;
  }
}

// Multiplies this warpgroup's 64 rows of a tile. fresh: the rows have arrived since this warpgroup's last tile; last:
// no other tile of this block needs them.
template <Columns kColumns, Finish kFinish>
__device__ __forceinline__ void multiply(float (&sums)[64], const Places<kFinish>& places, int half, int& stage,
                                         int& parity, int rows_parity, bool fresh, bool last, int lane) {
  constexpr int kTransposed = kColumns == Columns::transposed;
  int previous = 0;
  for (int step = 0; step < places.steps; ++step) {
    if (fresh) barrier_wait(places.rows_full(step), rows_parity);
    barrier_wait(places.full(stage), parity);
    const std::uint64_t a_place = matrix_place(places.rows(step) + half * (a_bytes / 2), 1024, 16);
    const std::uint64_t b_place = matrix_place(places.matrix(stage), 1024, kTransposed ? b_bytes / 2 : 16);
    products_fence();
#pragma unroll
    for (int part = 0; part < block_depth / 16; ++part) {
      multiply_128<kTransposed>(sums, a_place + part * (32 >> 4),
                                b_place + (kTransposed ? part * (16 * 128 >> 4) : part * (32 >> 4)),
                                step > 0 || part > 0);
    }
    products_commit();
    products_wait<1>();  // the previous step's operands have been read, so its stage can be refilled
    if (step > 0 && lane == 0) {
      barrier_arrive(places.empty(previous));
      if (last) barrier_arrive(places.rows_empty(step - 1));
    }
    previous = stage;
    places.advance(stage, parity);
  }
}

// For a tile in which this warpgroup has no rows: releases its stages as they come.
template <typename Room>
__device__ __forceinline__ void pass_by(const Room& places, int& stage, int& parity, bool last, int lane) {
  for (int step = 0; step < places.steps; ++step) {
    barrier_wait(places.full(stage), parity);
    if (lane == 0) {
      barrier_arrive(places.empty(stage));
      if (last) barrier_arrive(places.rows_empty(step));
    }
    places.advance(stage, parity);
  }
}

template <Columns kColumns, Finish kFinish, bool kCorrected>
__device__ __forceinline__ void multiply_tiles(const ProductArguments& arguments, const Places<kFinish>& places,
                                               Walk walk) {
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
      WarpTile<kFinish, kColumns == Columns::woven, 1, kCorrected> warp_tile{
          arguments,   tile.begin + half * 64 + warp * 16, tile.end, walk.column * block_columns,
          walk.column, places.staging(threadIdx.x >> 5),   lane,     tile.group};
      warp_tile.start();
      float sums[1][64];
      named_sync(1 + pair, 2 * pair_threads);
      if (tile.begin + half * 64 < tile.end) {
        multiply<kColumns, kFinish>(sums[0], places, half, stage, parity, fills & 1, seen <= fills, last, lane);
        seen = fills + 1;
        if (walk.left > 1) named_arrive(1 + (pair ^ 1), 2 * pair_threads);
        products_wait<0>();
        if (lane == 0) {
          barrier_arrive(places.empty(stage == 0 ? places.used - 1 : stage - 1));
          if (last) barrier_arrive(places.rows_empty(places.steps - 1));
        }
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

template <Columns kColumns, Finish kFinish, bool kCorrected>
__global__ void __launch_bounds__(threads, 1)
    resident_kernel(const __grid_constant__ CUtensorMap map_b, const __grid_constant__ ProductArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  Places<kFinish> places;
  places.base = (shared_address(memory) + 1023) & ~1023u;
  places.steps = (arguments.depth + block_depth - 1) / block_depth;
  places.used = min(stages_of<kFinish>, places.steps);
  if (threadIdx.x == 0) {
    for (int step = 0; step < places.steps; ++step) {
      barrier_start(places.rows_copied(step), 32 * gathering_warps);
      barrier_start(places.rows_full(step), 1);
      barrier_start(places.rows_empty(step), pair_warps);
    }
    for (int stage = 0; stage < places.used; ++stage) {
      barrier_start(places.full(stage), 1);
      barrier_start(places.empty(stage), pair_warps);
    }
    barriers_visible();
    prefetch_map(&map_b);
  }
  __syncthreads();
  after_previous();
  const Walk walk(row_tile_count(arguments), arguments.column_tiles);
  if (threadIdx.x >= 2 * pair_threads) {
    fewer_registers<32>();
    if (threadIdx.x < 2 * pair_threads + 32) {
      stream_matrices<kColumns, kFinish, 1>(&map_b, arguments, places, walk);
    } else if (threadIdx.x >= 2 * pair_threads + 64) {
      gather_rows(arguments, places, walk, threadIdx.x / 32 - 2 * pair_warps - 2);
    } else if (threadIdx.x == 2 * pair_threads + 32) {
      announce_rows(places, walk);
    }
  } else {
    more_registers<112>();
    multiply_tiles<kColumns, kFinish, kCorrected>(arguments, places, walk);
  }
#endif
}

// Where the epilogue is no more than stores, which need no other warpgroups' products to hide behind: tiles of 128 x
// 256 and one pair of warpgroups, with 128 sums a thread. A product of 64 x 256 reads its rows once, so that the tensor
// cores' 1,024 cycles for 128 x 256 x 64 take 896 of shared memory instead of 1,024.
constexpr int wide_threads = 384, wide_blocks = 2, wide_stages = 3;
constexpr int wide_shared =
    1024 + most_steps * a_bytes + wide_stages * wide_blocks * b_bytes + 8 * (3 * most_steps + 2 * wide_stages);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct WidePlaces {
  std::uint32_t base;
  int steps;
  __device__ std::uint32_t rows(int step) const { return base + step * a_bytes; }
  __device__ std::uint32_t matrix(int stage) const { return rows(most_steps) + stage * wide_blocks * b_bytes; }
  __device__ std::uint32_t rows_full(int step) const { return matrix(wide_stages) + 8 * step; }
  __device__ std::uint32_t rows_empty(int step) const { return rows_full(most_steps + step); }
  __device__ std::uint32_t rows_copied(int step) const { return rows_full(2 * most_steps + step); }
  __device__ std::uint32_t full(int stage) const { return rows_full(3 * most_steps + stage); }
  __device__ std::uint32_t empty(int stage) const { return full(wide_stages + stage); }
  __device__ void advance(int& stage, int& parity) const {
    if (++stage == wide_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void multiply_wide_tiles(const ProductArguments& arguments, const WidePlaces& places,
                                                    Walk walk) {
  const int half = threadIdx.x / 128 - 1, warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
  int stage = 0, parity = 0, rows_parity = 0;
  bool fresh = true;  // the rows have arrived since the last tile
  for (; walk.left > 0; walk.advance()) {
    const bool last = walk.last_of_row();
    const Tile tile = row_tile(arguments, walk.row);
    const int first = tile.begin + half * 64;
    if (first < tile.end) {
      float sums[wide_blocks][1][64];
      int previous = 0;
      for (int step = 0; step < places.steps; ++step) {
        if (fresh) barrier_wait(places.rows_full(step), rows_parity);
        barrier_wait(places.full(stage), parity);
        const std::uint64_t a_place = matrix_place(places.rows(step) + half * (a_bytes / 2), 1024, 16);
        const std::uint64_t b_place = matrix_place(places.matrix(stage), 1024, 16);
        products_fence();
#pragma unroll
        for (int part = 0; part < block_depth / 16; ++part)
          multiply_256<0>(sums[0][0], sums[1][0], a_place + part * (32 >> 4), b_place + part * (32 >> 4),
                          step > 0 || part > 0);
        products_commit();
        products_wait<1>();  // the previous step's operands have been read, so its stage can be refilled
        if (step > 0 && lane == 0) {
          barrier_arrive(places.empty(previous));
          if (last) barrier_arrive(places.rows_empty(step - 1));
        }
        previous = stage;
        places.advance(stage, parity);
      }
      products_wait<0>();
      if (lane == 0) {
        barrier_arrive(places.empty(previous));
        if (last) barrier_arrive(places.rows_empty(places.steps - 1));
      }
#pragma unroll
      for (int block = 0; block < wide_blocks; ++block) {
        settle(sums[block][0]);
        const int column = (walk.column * wide_blocks + block) * block_columns;
        WarpTile<Finish::store, true, 1, false> share{arguments, first + warp * 16, tile.end, column, 0, 0,
                                                      lane,      tile.group};
        share.finish(sums[block]);
      }
    } else {
      pass_by(places, stage, parity, last, lane);
    }
    fresh = last;
    rows_parity ^= last ? 1 : 0;
  }
}

#endif

__global__ void __launch_bounds__(wide_threads, 1)
    wide_resident_kernel(const __grid_constant__ CUtensorMap map_b,
                         const __grid_constant__ ProductArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  constexpr int multiplying_warps = 8;
  WidePlaces places;
  places.base = (shared_address(memory) + 1023) & ~1023u;
  places.steps = (arguments.depth + block_depth - 1) / block_depth;
  if (threadIdx.x == 0) {
    for (int step = 0; step < places.steps; ++step) {
      barrier_start(places.rows_copied(step), 32 * gathering_warps);
      barrier_start(places.rows_full(step), 1);
      barrier_start(places.rows_empty(step), multiplying_warps);
    }
    for (int stage = 0; stage < wide_stages; ++stage) {
      barrier_start(places.full(stage), 1);
      barrier_start(places.empty(stage), multiplying_warps);
    }
    barriers_visible();
    prefetch_map(&map_b);
  }
  __syncthreads();
  after_previous();
  const Walk walk(row_tile_count(arguments), arguments.column_tiles);
  if (threadIdx.x < 128) {
    fewer_registers<40>();
    if (threadIdx.x < 32) {
      stream_matrices<Columns::woven, Finish::store, wide_blocks>(&map_b, arguments, places, walk);
    } else if (threadIdx.x >= 64) {
      gather_rows(arguments, places, walk, threadIdx.x / 32 - 2);
    } else if (threadIdx.x == 32) {
      announce_rows(places, walk);
    }
  } else {
    more_registers<232>();
    multiply_wide_tiles(arguments, places, walk);
  }
#endif
}

bool launch_wide_kernel(Context& ctx, const GroupedProduct& product) {
  if (product.rank > 0 || product.columns % (wide_blocks * block_columns) != 0) return false;
  const ProductArguments arguments = arguments_of(product, wide_blocks * block_columns, wide_blocks * block_columns);
  const std::int64_t most = (tile_table_entries(product.rows, product.groups) - 1) * arguments.column_tiles;
  if (most < ctx.cuda->multiprocessors) return false;  // smaller tiles occupy more of them
  const CUtensorMap map_b = describe_matrices<Columns::woven>(product);
  SOME_CUDA_CHECK(cudaFuncSetAttribute(wide_resident_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, wide_shared));
  launch_behind(ctx, wide_resident_kernel, static_cast<unsigned>(ctx.cuda->multiprocessors), wide_threads, wide_shared,
                map_b, arguments);
  return true;
}

template <Columns kColumns, Finish kFinish, bool kCorrected>
void launch_kernel(Context& ctx, const GroupedProduct& product) {
  const ProductArguments arguments = arguments_of(product, block_columns, block_columns);
  const CUtensorMap map_b = describe_matrices<kColumns>(product);
  const auto kernel = resident_kernel<kColumns, kFinish, kCorrected>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_of<kFinish>));
  const std::int64_t most = (tile_table_entries(product.rows, product.groups) - 1) * arguments.column_tiles;
  const unsigned grid = static_cast<unsigned>(std::min<std::int64_t>(ctx.cuda->multiprocessors, most));
  launch_behind(ctx, kernel, grid, threads, shared_of<kFinish>, map_b, arguments);
}

template <Columns kColumns, Finish kFinish>
void launch(Context& ctx, const GroupedProduct& product) {
  if constexpr (takes_correction(kFinish)) {
    if (product.rank > 0) return launch_kernel<kColumns, kFinish, true>(ctx, product);
  }
  launch_kernel<kColumns, kFinish, false>(ctx, product);
}

}  // namespace

bool launch_resident(Context& ctx, const GroupedProduct& product) {
  if (product.depth > most_steps * block_depth) return false;
  if (reads_result(product.finish)) {
    if (!product.b_transposed) return false;
    if (product.finish == Finish::gelu_backward) {
      launch<Columns::transposed, Finish::gelu_backward>(ctx, product);
    } else {
      launch<Columns::transposed, Finish::slope_backward>(ctx, product);
    }
    return true;
  }
  if (product.b_transposed || product.columns % 32 != 0) return false;
  if (product.finish == Finish::gelu) {
    launch<Columns::woven, Finish::gelu>(ctx, product);
  } else if (product.finish == Finish::gelu_slope) {
    launch<Columns::woven, Finish::gelu_slope>(ctx, product);
  } else if (!launch_wide_kernel(ctx, product)) {
    launch<Columns::woven, Finish::store>(ctx, product);
  }
  return true;
}

}  // namespace some::ops::cuda
