// Counting sort of the routing slots by expert (spec 3.5) on the device, without involving the host: counts per chunk,
// their sums, and a stable placement. It uses only integers, and the assignments determine each position, so the plan
// is always the same.
#include <algorithm>
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/gemm/grouped_gemm.h"
#include "ops/experts.h"

namespace some::cuda {
namespace {

// Sets counts[chunk, e] to the number of routing slots of this chunk that are assigned to expert e.
__global__ void __launch_bounds__(256) count_kernel(const std::int32_t* __restrict__ indices, std::int64_t total,
                                                    int experts, int chunk, std::int32_t* __restrict__ counts) {
  wait_previous_kernel();
  extern __shared__ std::int32_t histogram[];
  for (int e = threadIdx.x; e < experts; e += blockDim.x) histogram[e] = 0;
  __syncthreads();
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * chunk, end = min(begin + chunk, total);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) atomicAdd(&histogram[indices[i]], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x)
    counts[static_cast<std::int64_t>(blockIdx.x) * experts + e] = histogram[e];
}

constexpr int scan_threads = 1024;
using Scan = cub::BlockScan<int, scan_threads>;

// Builds the table of row tiles from the experts' offsets; run by one block.
__device__ void write_tiles(const std::int32_t* offsets, int experts, Tile* tiles, Scan::TempStorage& storage) {
  __shared__ int starts[scan_threads];
  int done = 0;
  for (int first = 0; first < experts; first += scan_threads) {
    const int e = first + threadIdx.x;
    const int count = e < experts ? (offsets[e + 1] - offsets[e] + tile_rows - 1) / tile_rows : 0;
    int start = 0, total = 0;
    Scan(storage).ExclusiveSum(count, start, total);
    starts[threadIdx.x] = done + start;
    __syncthreads();
    const int last = min(experts - first, scan_threads);
    for (int i = threadIdx.x / 32; i < last; i += scan_threads / 32) {
      const int begin = offsets[first + i], end = offsets[first + i + 1];
      for (int tile = threadIdx.x & 31; begin + tile * tile_rows < end; tile += 32) {
        const int row = begin + tile * tile_rows;
        tiles[1 + starts[i] + tile] = {first + i, row, min(row + tile_rows, end), 0};
      }
    }
    done += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) tiles[0] = {done, 0, 0, 0};
}

__global__ void __launch_bounds__(scan_threads) tiles_kernel(const std::int32_t* offsets, int experts, Tile* tiles) {
  __shared__ Scan::TempStorage storage;
  write_tiles(offsets, experts, tiles, storage);
}

// Places the routing slots; one block per chunk. Each block sums the counts itself, which is faster than waiting for a
// block that does it for all; the first block also writes offsets and tiles. Then one warp places the routing slots, 32
// at a time in their order, so that the order within an expert is kept. shared: [2][experts].
__global__ void __launch_bounds__(scan_threads)
    place_kernel(const std::int32_t* __restrict__ indices, std::int64_t total, int experts, int chunk, int chunks,
                 const std::int32_t* __restrict__ counts, std::int32_t* __restrict__ offsets, Tile* __restrict__ tiles,
                 std::int32_t* __restrict__ order, std::int32_t* __restrict__ place) {
  wait_previous_kernel();
  extern __shared__ std::int32_t shared[];
  __shared__ Scan::TempStorage storage;
  std::int32_t *const next = shared, *const all =
                                         shared + experts;  // per expert: routing slots before this chunk, and in total
  for (int e = threadIdx.x; e < 2 * experts; e += scan_threads) shared[e] = 0;
  __syncthreads();
  // Several threads share the chunks of an expert; integers can be added in any order.
  const int sharing = max(1, scan_threads / experts);
  for (int i = threadIdx.x; i < sharing * experts; i += scan_threads) {
    const int e = i % experts;
    int before = 0, sum = 0;
#pragma unroll 8
    for (int c = i / experts; c < chunks; c += sharing) {
      const int count = counts[static_cast<std::int64_t>(c) * experts + e];
      sum += count;
      before += c < static_cast<int>(blockIdx.x) ? count : 0;
    }
    atomicAdd(&next[e], before);
    atomicAdd(&all[e], sum);
  }
  __syncthreads();
  int done = 0;
  for (int first = 0; first < experts; first += scan_threads) {
    const int e = first + threadIdx.x;
    int start = 0, sum = 0;
    Scan(storage).ExclusiveSum(e < experts ? all[e] : 0, start, sum);
    if (e < experts) {
      next[e] += done + start;
      if (blockIdx.x == 0) offsets[e] = done + start;
    }
    done += sum;
    __syncthreads();
  }
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) offsets[experts] = static_cast<std::int32_t>(total);
    __syncthreads();
    write_tiles(offsets, experts, tiles, storage);
  }
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * chunk, end = min(begin + chunk, total);
  constexpr int ahead = 8;  // groups of 32 whose loads are in flight at a time
  for (std::int64_t first = begin; first < end; first += 32 * ahead) {
    int chosen[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const std::int64_t at = first + i * 32 + lane;
      chosen[i] = at < end ? indices[at] : experts;
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const unsigned same = __match_any_sync(0xffffffffu, chosen[i]);
      const int rank = __popc(same & ((1u << lane) - 1));
      const bool valid = chosen[i] < experts;
      const int position = valid ? next[chosen[i]] + rank : 0;
      __syncwarp();
      if (valid && rank == 0) next[chosen[i]] += __popc(same);
      __syncwarp();
      if (valid) {
        const std::int64_t at = first + i * 32 + lane;
        order[position] = static_cast<std::int32_t>(at);
        place[at] = position;
      }
    }
  }
}

Tensor empty_table(Context& ctx, std::int64_t rows, int experts) {
  return ctx.scratch({tile_table_entries(rows, experts), 4}, DType::i32);
}

}  // namespace

Tensor tile_table(Context& ctx, const DispatchPlan& plan) {
  if (plan.tiles) return plan.tiles;
  Tensor tiles = empty_table(ctx, plan.order.elements(), plan.experts);
  tiles_kernel<<<1, scan_threads, 0, ctx.cuda->stream>>>(plan.offsets.data<std::int32_t>(), plan.experts,
                                                         static_cast<Tile*>(tiles.raw()));
  SOME_CUDA_LAUNCHED();
  return tiles;
}

DispatchPlan make_dispatch(Context& ctx, const Tensor& indices, int experts, const Tensor& given) {
  const std::int64_t total = indices.elements();
  DispatchPlan plan;
  plan.experts = experts;
  plan.order = ctx.scratch({total}, DType::i32);
  plan.place = ctx.scratch({total}, DType::i32);
  plan.offsets = ctx.scratch({experts + 1}, DType::i32);
  plan.tiles = empty_table(ctx, total, experts);

  const ArenaScope scope(*ctx.arena);
  // Chunk length. A warp places a chunk one group of 32 after another, so short chunks are done sooner; but each block
  // sums all experts * chunks counts.
  constexpr std::int64_t max_counts = 8192;
  int chunk = 256;
  while (chunk < 4096 && experts * (total / chunk) > max_counts) chunk *= 2;
  // Counts that the router has stored are used instead of counting again, unless there are too many to scan.
  const bool counted = given && given.elements() <= max_counts && total > 0;
  if (counted) chunk = 64 * static_cast<int>(indices.dim(1));
  const int chunks = static_cast<int>(std::max<std::int64_t>(1, (total + chunk - 1) / chunk));
  const std::size_t shared = static_cast<std::size_t>(experts) * sizeof(std::int32_t);
  if (2 * shared > 32 * 1024) {
    SOME_CUDA_CHECK(
        cudaFuncSetAttribute(count_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
    SOME_CUDA_CHECK(
        cudaFuncSetAttribute(place_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(2 * shared)));
  }
  const Tensor counts = counted ? given : ctx.scratch({chunks, experts}, DType::i32);
  const std::int32_t* const chosen = indices.data<std::int32_t>();
  if (!counted)
    launch_dependent(ctx, count_kernel, static_cast<unsigned>(chunks), 256, shared, chosen, total, experts, chunk,
                     counts.data<std::int32_t>());
  launch_dependent(ctx, place_kernel, static_cast<unsigned>(chunks), scan_threads, 2 * shared, chosen, total, experts,
                   chunk, chunks, counts.data<std::int32_t>(), plan.offsets.data<std::int32_t>(),
                   static_cast<Tile*>(plan.tiles.raw()), plan.order.data<std::int32_t>(),
                   plan.place.data<std::int32_t>());
  return plan;
}

}  // namespace some::cuda
