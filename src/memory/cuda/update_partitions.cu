// Additional steps of an update on the GPU if the store has several partitions: slots for misses, and the centroids.
#include "kernels/reduce/segment_sums.h"
#include "memory/cuda/grouping.cuh"
#include "memory/cuda/update.cuh"

namespace some::cuda {
namespace {

// Computes sort keys that put slots into eviction order within each partition.
__global__ void __launch_bounds__(threads)
    partition_usage_kernel(const float* usage, std::int64_t count, std::int64_t partition_size, long long* keys) {
  wait_previous_kernel_no_trigger();
  const std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (m < count) keys[m] = ((m / partition_size) << usage_bits) | __float_as_uint(usage[m]);
}

// One block. Each miss takes, from the partitions it searches, the least used slot that no earlier miss has taken; ties
// go to the lower slot, but between empty slots to the nearer partition. Every choice depends on the previous ones, so
// a single warp makes them all.
__global__ void __launch_bounds__(threads)
    choose_slots_kernel(Update update, const std::int32_t* searched, int nprobe, int positions, SortedLongs sorted,
                        std::int32_t partition_size, int parts, std::int32_t* order) {
  wait_previous_kernel_no_trigger();
  __shared__ unsigned missed[max_words];
  extern __shared__ std::int32_t next[];  // per partition
  for (int base = 0; base < positions; base += threads) {
    const int t = base + static_cast<int>(threadIdx.x);
    const unsigned word = __ballot_sync(full_warp, t < positions && update.is_miss(t));
    if (threadIdx.x % warp_size == 0 && t < positions) missed[t / warp_size] = word;
    if (t < positions) order[t] = -1;
  }
  for (int p = threadIdx.x; p < parts; p += threads) next[p] = 0;
  __syncthreads();
  if (threadIdx.x >= warp_size) return;
  constexpr unsigned long long none = ~0ull;
  const int lane = threadIdx.x;
  int births = 0;
  for (int w = 0; w < (positions + warp_size - 1) / warp_size; ++w) {
    for (unsigned left = missed[w]; left != 0; left &= left - 1, ++births) {
      const int t = w * warp_size + __ffs(static_cast<int>(left)) - 1;
      unsigned long long best = none;  // by usage, then slot; empty slots by rank of the partition
      std::int32_t slot = -1, part = -1;
      for (int i = lane; i < nprobe; i += warp_size) {
        const std::int32_t own = searched[static_cast<std::int64_t>(t) * nprobe + i];
        if (own < 0 || next[own] == partition_size) continue;
        const std::int64_t at = static_cast<std::int64_t>(own) * partition_size + next[own];
        const auto usage = static_cast<unsigned long long>(sorted.keys[at]) & ((1ull << usage_bits) - 1);
        const std::int32_t candidate = sorted.items[at];
        const auto mine = (usage << 32) | static_cast<unsigned>(usage == 0 ? i : candidate);
        if (mine < best) {
          best = mine;
          slot = candidate;
          part = own;
        }
      }
      unsigned long long least = best;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        const unsigned long long other = __shfl_xor_sync(full_warp, least, offset);
        least = other < least ? other : least;
      }
      if (least != none && best == least) {
        order[births] = slot;
        ++next[part];
      }
      __syncwarp();
    }
  }
}

// One block per position: the first position assigned to a partition updates its centroid for all of them, in order.
__global__ void __launch_bounds__(threads)
    move_centroids_kernel(Update update, float* centroids, std::int32_t partition_size) {
  wait_previous_kernel_no_trigger();
  __shared__ Group::Shared together;
  const int t = blockIdx.x, positions = update.positions, d = update.d;
  const auto part_of = [&](int other) {
    const std::int32_t assignment = update.assignments[other];
    return assignment == no_slot ? -1 : (assignment & ~(inserted_flag | evicted_flag)) / partition_size;
  };
  const std::int32_t part = part_of(t);
  if (part < 0) return;
  Group group{};
  if (!group.collect(together, t, positions, [&](int other) { return part_of(other) == part; })) return;
  for (int c = threadIdx.x; c < d; c += threads)
    centroids[static_cast<std::int64_t>(part) * d + c] +=
        group.sum(0.0f, [&](int other) { return update.queries[static_cast<std::int64_t>(other) * d + c]; });
}

// One block per partition counts its non-empty slots.
__global__ void __launch_bounds__(threads)
    used_kernel(const float* counts, std::int32_t partition_size, std::int32_t* used) {
  wait_previous_kernel_no_trigger();
  const float* own = counts + static_cast<std::int64_t>(blockIdx.x) * partition_size;
  int sum = 0;
  for (int base = 0; base < partition_size; base += threads) {
    const int m = base + static_cast<int>(threadIdx.x);
    sum += __syncthreads_count(m < partition_size && own[m] > 0.0f);
  }
  if (threadIdx.x == 0) used[blockIdx.x] = sum;
}

}  // namespace

const std::int32_t* least_used_slots(Context& ctx, const Store& store, const MemorySettings& settings,
                                     const Update& update, const std::int32_t* numbers, std::int64_t positions) {
  const std::int64_t size = store.partition_size(), active = store.partitions_active();
  const auto nprobe = static_cast<int>(partitions_to_search(store, settings));
  long long* keys = longs(ctx.scratch({store.reach}, DType::i64));
  std::int32_t* order = ints(ctx.scratch({positions}, DType::i32));
  const std::int32_t* searched = choose_partitions(ctx, store, update.queries, positions, nprobe);
  launch_dependent(ctx, partition_usage_kernel, dim3(grid_for(store.reach, threads)), dim3(threads), 0, update.usage,
                   store.reach, size, keys);
  const SortedLongs sorted = sort_pairs(ctx, keys, numbers, store.reach, usage_bits + bits_for(active));
  choose_slots_kernel<<<1, threads, static_cast<std::size_t>(active) * sizeof(std::int32_t), ctx.cuda->stream>>>(
      update, searched, nprobe, static_cast<int>(positions), sorted, static_cast<std::int32_t>(size),
      static_cast<int>(active), order);
  SOME_CUDA_CHECK(cudaGetLastError());
  return order;
}

// As long as some partitions are inactive, the host needs to know how full the others are.
void update_partitions(Context& ctx, const Update& update, std::int64_t positions, Store& store) {
  const auto size = static_cast<std::int32_t>(store.partition_size());
  launch_dependent(ctx, move_centroids_kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0, update,
                   floats(store.centroids), size);
  if (store.reach == store.slots()) return;
  const std::int64_t active = store.partitions_active();
  const Tensor used = ctx.scratch({active}, DType::i32);
  launch_dependent(ctx, used_kernel, dim3(static_cast<unsigned>(active)), dim3(threads), 0, floats(store.counts), size,
                   ints(used));
  const Tensor host = used.to(Device::cpu);
  split_full_partitions(ctx, {host.data<std::int32_t>(), static_cast<std::size_t>(active)}, store);
}

}  // namespace some::cuda
