// k-means refinement on the GPU: one block per position that is inserted.
#include "kernels/cuda/launch.cuh"
#include "memory/cuda/grouping.cuh"
#include "memory/entries.h"

namespace some::cuda {
namespace {

// The store that a refinement pass builds; its keys are sums of queries.
struct Draft {
  float *keys, *entry_counts;
  std::int32_t* values;
  long long *born, *hit;
  std::int64_t slots;
  int d, entries;

  __device__ Entries<float, long long> entries_of(std::int64_t slot) const {
    return {values + slot, entry_counts + slot, born + slot, hit + slot, slots, entries};
  }
};
Draft draft_of(Store& store) {
  return {floats(store.keys),
          floats(store.entry_counts_or_totals()),
          ints(store.values),
          longs(store.born),
          longs(store.hit),
          store.slots(),
          static_cast<int>(store.keys.dim(1)),
          static_cast<int>(store.entries())};
}

// One block per position: the first position of a slot inserts all positions of that slot, in order.
__global__ void __launch_bounds__(threads)
    insert_assigned_kernel(Draft draft, const float* queries, const std::int32_t* targets, const long long* places,
                           const std::int32_t* assigned_slots) {
  wait_previous_kernel_no_trigger();
  __shared__ Group::Shared together;
  const int t = blockIdx.x, positions = gridDim.x, d = draft.d;
  const std::int32_t assigned = assigned_slots[t];
  if (assigned < 0) return;
  Group group{};
  if (!group.collect(together, t, positions, [&](int other) { return assigned_slots[other] == assigned; })) return;
  for (int c = threadIdx.x; c < d; c += threads) {
    float& key = draft.keys[static_cast<std::int64_t>(assigned) * d + c];
    key = group.sum(key, [&](int other) { return queries[static_cast<std::int64_t>(other) * d + c]; });
  }
  if (threadIdx.x != 0) return;
  const auto entries = draft.entries_of(assigned);
  for (int i = 0; i < group.count; ++i) entries.meet(targets[group.members[i]], places[group.members[i]]);
}

// One block per partition: sums the keys of its slots.
__global__ void __launch_bounds__(threads)
    centroids_kernel(Draft draft, float* centroids, std::int64_t partition_size) {
  wait_previous_kernel_no_trigger();
  const std::int64_t first = blockIdx.x * partition_size;
  for (int c = threadIdx.x; c < draft.d; c += threads) {
    float sum = 0.0f;
    for (std::int64_t m = first; m < first + partition_size; ++m) sum += draft.keys[m * draft.d + c];
    centroids[static_cast<std::int64_t>(blockIdx.x) * draft.d + c] = sum;
  }
}

// One block per slot: normalizes the key, and computes count and usage.
__global__ void __launch_bounds__(threads) normalize_sums_kernel(Draft draft, float* counts, float* usage) {
  wait_previous_kernel_no_trigger();
  __shared__ float partial[warp_size];
  float* key = draft.keys + static_cast<std::int64_t>(blockIdx.x) * draft.d;
  float square = 0.0f;
  for (int c = threadIdx.x; c < draft.d; c += threads) square = fmaf(key[c], key[c], square);
  const float inverse = 1.0f / fmaxf(sqrtf(block_sum(square, partial)), shortest);
  for (int c = threadIdx.x; c < draft.d; c += threads) key[c] *= inverse;
  if (threadIdx.x == 0) counts[blockIdx.x] = usage[blockIdx.x] = draft.entries_of(blockIdx.x).total();
}

}  // namespace

void insert_assigned(Context& ctx, const Tensor& queries, const Tensor& targets, const Tensor& places,
                     const Tensor& assigned_slots, Store& store) {
  const std::int64_t positions = queries.dim(0);
  if (positions == 0) return;
  if (positions > max_window)
    failed(Code::size_unsupported, "{} positions at once exceed the maximum of {}", positions, max_window);
  launch_dependent(ctx, insert_assigned_kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0,
                   draft_of(store), floats(queries), ints(targets), longs(places), ints(assigned_slots));
}

void finish_refinement(Context& ctx, Store& store) {
  const Draft draft = draft_of(store);
  if (store.partitions() > 1)
    launch_dependent(ctx, centroids_kernel, dim3(static_cast<unsigned>(store.partitions())), dim3(threads), 0, draft,
                     floats(store.centroids), store.partition_size());
  launch_dependent(ctx, normalize_sums_kernel, dim3(static_cast<unsigned>(store.slots())), dim3(threads), 0, draft,
                   floats(store.counts), floats(store.usage));
}

}  // namespace some::cuda
