// The grouped product on Hopper: a persistent kernel in which one warpgroup loads and two multiply (wgmma).
//
// b comes by the tensor copy engine; a likewise, or, when rows are gathered, by 16-byte asynchronous copies from rows
// looked up while loading, so that the gathered input is never written. Two ways of sharing the work between the
// multiplying warpgroups:
//   ping-pong    each takes its own 128x128 tile, and one finishes a tile (GELU, stores) while the other multiplies;
//   cooperative  both take halves of a 128x256 tile: less shared-memory traffic, for long sums with little to finish.
// Tiles run through the columns first, then the rows of a group, so that a group's matrix stays in L2.
#include "ops/cuda_hopper.cuh"
#include "ops/grouped_gemm_kernel.cuh"

namespace some::cuda {
namespace {

constexpr int block_depth = 64;  // 128 bytes of bf16: one row of the 128-byte permutation
constexpr int a_bytes = tile_rows * block_depth * 2;
constexpr int threads = 384;

template <bool kPingPong>
struct Layout {
  static constexpr int columns = kPingPong ? 128 : 256;
  static constexpr int stages = kPingPong ? 6 : 4;
  static constexpr int lag =
      kPingPong ? 3 : 2;  // stages whose gathered rows may still be on their way
  static constexpr int b_bytes = columns * block_depth * 2;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  static_assert(lag < stages);
  static constexpr int shared_bytes = stages * stage_bytes + 1024 + 2 * 8 * stages;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Barriers of one stage: `full` when its data has arrived, `empty` when it has been used.
struct Pipeline {
  std::uint32_t data;
  std::uint32_t barriers;
  int stages;
  __device__ std::uint32_t full(int stage) const { return barriers + 8 * stage; }
  __device__ std::uint32_t empty(int stage) const { return barriers + 8 * (stages + stage); }
};

template <bool kPingPong, bool kGather, bool kTransposed, Finish kFinish>
__device__ __forceinline__ void load_tiles(const CUtensorMap* map_a, const CUtensorMap* map_b,
                                           const ProductArguments& arguments, const Pipeline& pipeline, int tiles,
                                           int steps) {
  using L = Layout<kPingPong>;
  const int thread = threadIdx.x;
  if (!kGather && thread != 0) return;
  int stage = 0, parity = 1;
  int arrived = 0, waiting = 0;  // gathered stages: the next to announce, and how many are on their way
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    const int first_column = (index % arguments.column_tiles) * L::columns;
    const bf16* rows[8];
    if constexpr (kGather) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int j = min(tile.begin + (thread >> 3) + 16 * i, tile.end - 1);
        rows[i] = static_cast<const bf16*>(arguments.a) +
                  static_cast<std::int64_t>(source_row(arguments, j)) * arguments.depth + (thread & 7) * 8;
      }
      if constexpr (kFinish == Finish::gelu_backward) {
        // What the finish will read, on its way from memory while the product is being made.
        const int j = min(tile.begin + thread, tile.end - 1);
        const bf16* row = static_cast<const bf16*>(arguments.result) + static_cast<std::int64_t>(j) * arguments.columns;
#pragma unroll
        for (int column = 0; column < L::columns; column += 64) {
          if (first_column + column < arguments.columns) prefetch_l2(row + first_column + column);
        }
      }
    }
    for (int step = 0; step < steps; ++step) {
      barrier_wait(pipeline.empty(stage), parity);
      const std::uint32_t a_base = pipeline.data + stage * L::stage_bytes, b_base = a_base + a_bytes;
      const int start = step * block_depth;
      if (thread == 0) {
        barrier_expect(pipeline.full(stage), kGather ? L::b_bytes : L::stage_bytes);
        if constexpr (!kGather) copy_box(a_base, map_a, pipeline.full(stage), start, tile.begin, 0);
        if constexpr (kTransposed) {
#pragma unroll
          for (int block = 0; block < L::columns / 64; ++block) {
            copy_box(b_base + block * 8192, map_b, pipeline.full(stage), first_column + block * 64, start, tile.group);
          }
        } else {
          copy_box(b_base, map_b, pipeline.full(stage), start, first_column, tile.group);
        }
      }
      if constexpr (kGather) {
        const int piece = thread & 7;
        const bool valid = start + piece * 8 < arguments.depth;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int row = (thread >> 3) + 16 * i;
          copy_async(a_base + row * 128 + ((piece ^ (row & 7)) << 4), valid ? rows[i] + start : rows[i], valid);
        }
        copy_async_commit();
        if (waiting == L::lag) {
          copy_async_wait<L::lag>();
          publish_shared();
          barrier_arrive(pipeline.full(arrived));
          arrived = arrived + 1 == L::stages ? 0 : arrived + 1;
        } else {
          ++waiting;
        }
      }
      if (++stage == L::stages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
  if constexpr (kGather) {
    copy_async_wait<0>();
    publish_shared();
    for (; waiting > 0; --waiting) {
      barrier_arrive(pipeline.full(arrived));
      arrived = arrived + 1 == L::stages ? 0 : arrived + 1;
    }
  }
}

template <bool kPingPong, bool kTransposed, int kBlocks, int kSums>
__device__ __forceinline__ void multiply_tile(float (&sums)[kPingPong ? 2 : 1][kSums], const Pipeline& pipeline,
                                              int& stage, int& parity, int steps, int first_row, int lane) {
  using L = Layout<kPingPong>;
  int previous = -1;
  for (int step = 0; step < steps; ++step) {
    barrier_wait(pipeline.full(stage), parity);
    const std::uint32_t a_base = pipeline.data + stage * L::stage_bytes + first_row * 128;
    const std::uint32_t b_base = pipeline.data + stage * L::stage_bytes + a_bytes;
    const std::uint64_t a_place = matrix_place(a_base, 1024, 16);
    const std::uint64_t b_place = matrix_place(b_base, 1024, kTransposed ? 8192 : 16);
    products_fence();
#pragma unroll
    for (int part = 0; part < block_depth / 16; ++part) {
      const std::uint64_t b_part = b_place + (kTransposed ? part * (2048 >> 4) : part * 2);
      const int add = step > 0 || part > 0;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const std::uint64_t a_part = a_place + block * (8192 >> 4) + part * 2;
        if constexpr (kPingPong) {
          multiply_128<kTransposed>(sums[block], a_part, b_part, add);
        } else {
          multiply_256<kTransposed>(sums[block], a_part, b_part, add);
        }
      }
    }
    products_commit();
    products_wait<1>();  // the step before has been read: its stage can be filled again
    if (previous >= 0 && lane == 0) barrier_arrive(pipeline.empty(previous));
    previous = stage;
    if (++stage == L::stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

template <bool kPingPong, bool kTransposed, Finish kFinish>
__device__ __forceinline__ void multiply_tiles(const ProductArguments& arguments, const Pipeline& pipeline, int tiles,
                                               int steps) {
  using L = Layout<kPingPong>;
  constexpr int kSums = L::columns / 2;
  const int group = threadIdx.x / 128 - 1, lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
  int stage = 0, parity = 0, turn = 0;
  if (kPingPong && group == 1 && static_cast<int>(blockIdx.x) < tiles) named_arrive(1, 256);
  const auto skip = [&](int count) {
    for (stage += count; stage >= L::stages; stage -= L::stages) parity ^= 1;
  };
  for (int index = blockIdx.x; index < tiles; index += gridDim.x, turn ^= 1) {
    if (kPingPong && turn != group) {
      skip(steps);
      continue;
    }
    const Tile tile = row_tile(arguments, index / arguments.column_tiles);
    const int column_tile = index % arguments.column_tiles;
    const int first_row = kPingPong ? 0 : group * 64;
    float sums[kPingPong ? 2 : 1][kSums];
    if constexpr (kPingPong) {
      named_sync(1 + group, 256);
      if (tile.end - tile.begin > 64) {
        multiply_tile<kPingPong, kTransposed, 2>(sums, pipeline, stage, parity, steps, first_row, lane);
      } else {
        multiply_tile<kPingPong, kTransposed, 1>(sums, pipeline, stage, parity, steps, first_row, lane);
      }
      if (index + static_cast<int>(gridDim.x) < tiles) named_arrive(1 + (group ^ 1), 256);
    } else {
      multiply_tile<kPingPong, kTransposed, 1>(sums, pipeline, stage, parity, steps, first_row, lane);
    }
    products_wait<0>();
    if (lane == 0) barrier_arrive(pipeline.empty(stage == 0 ? L::stages - 1 : stage - 1));
#pragma unroll
    for (int block = 0; block < (kPingPong ? 2 : 1); ++block) {
      const int row = tile.begin + first_row + block * 64 + warp * 16;
      if (row < tile.end) {
        finish_rows<kFinish, L::columns / 8>(sums[block], arguments, row, tile.end, column_tile * L::columns,
                                             column_tile, lane);
      }
    }
  }
}

#endif

template <bool kPingPong, bool kGather, bool kTransposed, Finish kFinish>
__global__ void __launch_bounds__(threads, 1)
    hopper_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                  const __grid_constant__ ProductArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<kPingPong>;
  extern __shared__ unsigned char memory[];
  Pipeline pipeline;
  pipeline.data = (shared_address(memory) + 1023) & ~1023u;
  pipeline.barriers = pipeline.data + L::stages * L::stage_bytes;
  pipeline.stages = L::stages;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < L::stages; ++stage) {
      barrier_start(pipeline.full(stage), kGather ? 129 : 1);
      barrier_start(pipeline.empty(stage), kPingPong ? 4 : 8);  // one arrival a multiplying warp
    }
    barriers_visible();
    if constexpr (!kGather) prefetch_map(&map_a);
    prefetch_map(&map_b);
  }
  __syncthreads();
  const int tiles = row_tile_count(arguments) * arguments.column_tiles;
  const int steps = (arguments.depth + block_depth - 1) / block_depth;
  if (threadIdx.x < 128) {
    fewer_registers<56>();
    load_tiles<kPingPong, kGather, kTransposed, kFinish>(&map_a, &map_b, arguments, pipeline, tiles, steps);
  } else {
    more_registers<224>();
    multiply_tiles<kPingPong, kTransposed, kFinish>(arguments, pipeline, tiles, steps);
  }
#endif
}

// The driver's function that describes a tensor to the copy engine, found at run time so that nothing links to the
// driver.
using EncodeFunction = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                    const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

EncodeFunction encode_function() {
  static const EncodeFunction function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    SOME_CUDA_CHECK(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
      failed("the GPU's driver has no cuTensorMapEncodeTiled: a newer driver is needed");
    return reinterpret_cast<EncodeFunction>(entry);
  }();
  return function;
}

// A bf16 tensor [outer, rows, inner] read in boxes of box_rows x 64; outside it reads as zeros.
CUtensorMap describe(const void* data, std::int64_t inner, std::int64_t rows, std::int64_t outer, int box_rows) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(outer)};
  const cuuint64_t strides[2] = {dims[0] * 2, dims[0] * dims[1] * 2};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult status =
      encode_function()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), dims, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) failed("cuTensorMapEncodeTiled failed with status {}", static_cast<int>(status));
  return map;
}

template <bool kPingPong, bool kGather, bool kTransposed, Finish kFinish>
void launch(Context& ctx, const GroupedProduct& product) {
  using L = Layout<kPingPong>;
  const ProductArguments arguments = arguments_of(product, L::columns, L::columns);
  const CUtensorMap map_b = kTransposed
                                ? describe(product.b, product.columns, product.depth, product.groups, 64)
                                : describe(product.b, product.depth, product.columns, product.groups, L::columns);
  const CUtensorMap map_a = kGather ? map_b : describe(product.a, product.depth, product.rows, 1, tile_rows);
  const auto kernel = hopper_kernel<kPingPong, kGather, kTransposed, kFinish>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::shared_bytes));
  const std::int64_t most = (tile_table_entries(product.rows, product.groups) - 1) * arguments.column_tiles;
  const unsigned grid = static_cast<unsigned>(std::min<std::int64_t>(ctx.cuda->multiprocessors, most));
  kernel<<<grid, threads, L::shared_bytes, ctx.cuda->stream>>>(map_a, map_b, arguments);
  SOME_CUDA_LAUNCHED();
}

template <bool kPingPong, bool kGather, bool kTransposed>
void launch_finish(Context& ctx, const GroupedProduct& product) {
  switch (product.finish) {
    case Finish::store:
      return launch<kPingPong, kGather, kTransposed, Finish::store>(ctx, product);
    case Finish::gelu:
      return launch<kPingPong, kGather, kTransposed, Finish::gelu>(ctx, product);
    case Finish::gelu_backward:
      return launch<kPingPong, kGather, kTransposed, Finish::gelu_backward>(ctx, product);
  }
}

template <bool kPingPong>
void launch_layout(Context& ctx, const GroupedProduct& product) {
  if (product.gather != 0) {
    return product.b_transposed ? launch_finish<kPingPong, true, true>(ctx, product)
                                : launch_finish<kPingPong, true, false>(ctx, product);
  }
  return product.b_transposed ? launch_finish<kPingPong, false, true>(ctx, product)
                              : launch_finish<kPingPong, false, false>(ctx, product);
}

}  // namespace

void launch_warpgroup(Context& ctx, const GroupedProduct& product, bool ping_pong) {
  return ping_pong ? launch_layout<true>(ctx, product) : launch_layout<false>(ctx, product);
}

}  // namespace some::cuda
