// Searches partitions on the GPU: determines which query searches which partition, and multiplies each partition's keys
// with its queries. If the queries of a window search nearly every partition, every key is read from memory once and
// multiplied with only a few queries, so the product is memory-bound.
#include "kernels/reduce/segment_sums.h"
#include "memory/cuda/store.cuh"

namespace some::cuda {
namespace {

// One block per partition: normalizes its centroid.
__global__ void __launch_bounds__(threads) directions_kernel(const float* centroids, float* directions, int d) {
  wait_previous_kernel_no_trigger();
  __shared__ float partial[warp_size];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * d;
  float square = 0.0f;
  for (int c = threadIdx.x; c < d; c += threads) square = fmaf(centroids[row + c], centroids[row + c], square);
  const float inverse = 1.0f / fmaxf(sqrtf(block_sum(square, partial)), shortest);
  for (int c = threadIdx.x; c < d; c += threads) directions[row + c] = centroids[row + c] * inverse;
}

// One block per row selects the nearest partitions, one after another. near: [rows, parts].
__global__ void __launch_bounds__(threads)
    choose_kernel(const float* near, int parts, int nprobe, std::int32_t* searched) {
  wait_previous_kernel_no_trigger();
  extern __shared__ float left[];  // [parts]
  __shared__ Near nearest_of[warps];
  for (int p = threadIdx.x; p < parts; p += threads) left[p] = near[static_cast<std::int64_t>(blockIdx.x) * parts + p];
  for (int i = 0; i < nprobe; ++i) {
    __syncthreads();
    Near mine = nothing_near();
    for (int p = threadIdx.x; p < parts; p += threads) {
      if (left[p] > -INFINITY) mine.consider({left[p], p});
    }
    mine = block_nearest(mine, nearest_of);
    if (threadIdx.x == 0) {
      searched[static_cast<std::int64_t>(blockIdx.x) * nprobe + i] = mine.slot;
      if (mine.slot >= 0) left[mine.slot] = -INFINITY;
    }
  }
}

// Numbers the pairs, with the partition as the sort key; pairs without a partition come last.
__global__ void __launch_bounds__(threads) pairs_kernel(const std::int32_t* searched, std::int64_t count,
                                                        std::int32_t parts, std::int32_t* keys, std::int32_t* pairs) {
  wait_previous_kernel_no_trigger();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  keys[i] = searched[i] < 0 ? parts : searched[i];
  pairs[i] = static_cast<std::int32_t>(i);
}

// Computes from the sorted pairs the place of each pair and the first visit of each partition.
__global__ void __launch_bounds__(threads)
    places_kernel(const std::int32_t* keys, const std::int32_t* pairs, std::int64_t count, std::int32_t parts,
                  std::int32_t* place, std::int32_t* begin) {
  wait_previous_kernel_no_trigger();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) place[pairs[i]] = static_cast<std::int32_t>(i);
  if (i > parts) return;
  std::int64_t low = 0, high = count;  // binary search for the first pair whose partition is >= i
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (keys[middle] < i)
      low = middle + 1;
    else
      high = middle;
  }
  begin[i] = static_cast<std::int32_t>(low);
}

// A block takes 128 slots of a partition and loops over the partition's visits, 16 at a time; each thread has 4 slots
// and 2 visits.
constexpr int tile_slots = 128, tile_visits = 16, tile_depth = 32;
static_assert(threads == 256);

__global__ void __launch_bounds__(threads)
    partition_scores_kernel(const float* keys, const float* rows, PartitionVisits visits, std::int32_t first,
                            std::int32_t width, int d, float* scores) {
  wait_previous_kernel_no_trigger();
  const int part = blockIdx.y, tile = static_cast<int>(blockIdx.x) * tile_slots;
  const int begin = visits.begin[part], end = visits.begin[part + 1];
  if (begin == end) return;
  __shared__ float key_tile[tile_depth][tile_slots + 1], row_tile[tile_depth][tile_visits + 1];
  const float* own = keys + (static_cast<std::int64_t>(part) * visits.partition_size + first + tile) * d;
  const int slots = min(tile_slots, width - tile), lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  for (int from = begin; from < end; from += tile_visits) {
    float sums[4][2] = {};
    for (int depth = 0; depth < d; depth += tile_depth) {
      const bool inside = depth + lane < d;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < tile_slots / warps; ++i) {
        const int s = warp + i * warps;
        key_tile[lane][s] = inside && s < slots ? own[static_cast<std::int64_t>(s) * d + depth + lane] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < tile_visits / warps; ++i) {
        const int v = warp + i * warps;
        const bool there = inside && from + v < end;
        const std::int64_t row = there ? visits.pairs[from + v] / visits.nprobe : 0;
        row_tile[lane][v] = there ? rows[row * d + depth + lane] : 0.0f;
      }
      __syncthreads();
#pragma unroll
      for (int c = 0; c < tile_depth; ++c) {
        const float one = row_tile[c][2 * warp], two = row_tile[c][2 * warp + 1];
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const float key = key_tile[c][lane + s * warp_size];
          sums[s][0] = fmaf(key, one, sums[s][0]);
          sums[s][1] = fmaf(key, two, sums[s][1]);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int visit = from + 2 * warp + v;
      if (visit >= end) continue;
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        const int slot = lane + s * warp_size;
        if (slot < slots) scores[static_cast<std::int64_t>(visit) * width + tile + slot] = sums[s][v];
      }
    }
  }
}

}  // namespace

std::int32_t* choose_partitions(Context& ctx, const Store& store, const float* queries, std::int64_t rows, int nprobe) {
  const std::int64_t d = store.keys.dim(1), active = store.partitions_active();
  std::int32_t* searched = ints(ctx.scratch({rows, static_cast<std::int64_t>(nprobe)}, DType::i32));
  ArenaScope scope(*ctx.arena);
  float* directions = floats(ctx.scratch({active, d}, DType::f32));
  float* near = floats(ctx.scratch({rows, active}, DType::f32));
  launch_dependent(ctx, directions_kernel, dim3(static_cast<unsigned>(active)), dim3(threads), 0,
                   floats(store.centroids), directions, static_cast<int>(d));
  matmul(ctx, rows, active, d, {queries, DType::f32, false}, {directions, DType::f32, true}, near, DType::f32, false);
  launch_dependent(ctx, choose_kernel, dim3(static_cast<unsigned>(rows)), dim3(threads),
                   static_cast<std::size_t>(active) * sizeof(float), near, static_cast<int>(active), nprobe, searched);
  return searched;
}

PartitionVisits make_visits(Context& ctx, const Store& store, const std::int32_t* searched, std::int64_t rows,
                            int nprobe) {
  PartitionVisits out;
  out.parts = searched;
  out.count = rows * nprobe;
  out.partition_size = static_cast<std::int32_t>(store.partition_size());
  out.nprobe = nprobe;
  const auto active = static_cast<std::int32_t>(store.partitions_active());
  std::int32_t* keys = ints(ctx.scratch({out.count}, DType::i32));
  std::int32_t* pairs = ints(ctx.scratch({out.count}, DType::i32));
  launch_dependent(ctx, pairs_kernel, dim3(grid_for(out.count, threads)), dim3(threads), 0, searched, out.count, active,
                   keys, pairs);
  const SortedPairs sorted = sort_pairs(ctx, keys, pairs, out.count, bits_for(active));
  std::int32_t* place = ints(ctx.scratch({out.count}, DType::i32));
  std::int32_t* begin = ints(ctx.scratch({active + std::int64_t{1}}, DType::i32));
  places_kernel<<<grid_for(std::max<std::int64_t>(out.count, active + 1), threads), threads, 0, ctx.cuda->stream>>>(
      sorted.keys, sorted.items, out.count, active, place, begin);
  SOME_CUDA_CHECK(cudaGetLastError());
  out.pairs = sorted.items;
  out.place = place;
  out.begin = begin;
  return out;
}

void score_partitions(Context& ctx, const Store& store, const float* rows, const PartitionVisits& visits,
                      std::int64_t first, std::int64_t width, float* scores) {
  launch_dependent(ctx, partition_scores_kernel,
                   dim3(grid_for(width, tile_slots), static_cast<unsigned>(store.partitions_active())), dim3(threads),
                   0, floats(store.keys), rows, visits, static_cast<std::int32_t>(first),
                   static_cast<std::int32_t>(width), static_cast<int>(store.keys.dim(1)), scores);
}

}  // namespace some::cuda
