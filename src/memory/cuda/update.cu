// Update of the memory on the GPU, with one block per position for matches, merge-on-evict and insertions. Nothing is
// read back to the host.
#include "kernels/reduce/segment_sums.h"
#include "memory/cuda/update.cuh"

namespace some::cuda {
namespace {

// Decays usage (spec 8, "Learning", item 1) for the slots of one block that were not matched; the blocks of matched
// slots do it themselves. Also writes slot numbers for the sort, and marks empty slots in `closed`, unless null:
// nothing is merged into them.
__device__ void decay(const Update& update, std::int64_t first, std::int64_t count, std::int32_t* numbers,
                      bool* closed) {
  __shared__ bool hit[threads];
  hit[threadIdx.x] = false;
  __syncthreads();
  for (int t = threadIdx.x; t < update.positions; t += threads) {
    const std::int64_t slot = update.nearest(t) - first;
    if (slot >= 0 && slot < threads && update.is_hit(t)) hit[slot] = true;
  }
  __syncthreads();
  const std::int64_t m = first + threadIdx.x;
  if (m >= count) return;
  if (!hit[threadIdx.x]) update.usage[m] = update.used(update.usage[m], 0);
  numbers[m] = static_cast<std::int32_t>(m);
  if (closed != nullptr) closed[m] = !hit[threadIdx.x] && !(update.counts[m] > 0.0f);
}

// One block per position applies matches. The blocks after them decay the other slots.
__global__ void __launch_bounds__(threads)
    matches_kernel(Update update, std::int64_t candidates, std::int32_t* numbers, bool* closed) {
  wait_previous_kernel_no_trigger();
  __shared__ Group::Shared together;
  const int t = blockIdx.x, positions = update.positions;
  if (t >= positions)
    return decay(update, static_cast<std::int64_t>(t - positions) * threads, candidates, numbers, closed);
  apply_matches(update, t, together, update.usage);
}

// Copies the content of evicted slots, one block per position: the j-th slot of `order` is evicted if there are more
// than j insertions; there is content if it is not empty.
__global__ void __launch_bounds__(threads)
    copy_evicted_kernel(Update update, EvictedSlots evicted, const std::int32_t* order, std::int64_t candidates) {
  wait_previous_kernel_no_trigger();
  const int j = blockIdx.x, d = update.d;
  const int misses = update.misses_before(update.positions);
  const bool is_evicted = j < misses && j < candidates && order[j] >= 0;
  const std::int32_t slot = is_evicted ? order[j] : -1;
  const bool has_content = is_evicted && update.counts[slot] > 0.0f;
  for (int c = threadIdx.x; c < d; c += threads)
    evicted.keys[static_cast<std::int64_t>(j) * d + c] =
        has_content ? update.keys[static_cast<std::int64_t>(slot) * d + c] : 0.0f;
  if (threadIdx.x >= warp_size) return;
  if (has_content) evicted.copy(update, j, slot, update.usage);
  if (threadIdx.x != 0) return;
  evicted.set_evicted(j, has_content ? slot : -1);
  if (is_evicted) evicted.closed[slot] = true;
  if (j == 0) *evicted.rows = min(misses, update.positions);
}

// One block per row searches a range of slots for the merge target, by the scores of the evicted key with these slots.
__global__ void __launch_bounds__(threads) merge_targets_kernel(Update update, EvictedSlots evicted, Scores scores) {
  wait_previous_kernel_no_trigger();
  __shared__ Near nearest_of[warps];
  const int j = blockIdx.x;
  const std::int32_t slot = evicted.slots_of_rows[j];
  if (slot < 0) return;
  const std::int32_t token = update.values[slot];
  const bool any = update.entries > 1;
  Near mine = nothing_near();
  for (int which = 0; which < scores.searches(); ++which) {
    const float* row = nullptr;
    std::int32_t first = 0;
    if (!scores.of_row(j, which, row, first)) continue;
#pragma unroll 4
    for (int m = threadIdx.x; m < scores.width; m += threads) {
      const float score = row[m];
      const bool closed = evicted.closed[first + m];
      if (!closed && (any || update.values[first + m] == token)) mine.consider({score, first + m});
    }
  }
  mine = block_nearest(mine, nearest_of);
  if (threadIdx.x == 0) evicted.nearest[j] = max(evicted.nearest[j], packed(mine));
}

// One block per row: the first row of a merge target merges all rows of that target, in order.
__device__ void merge_evicted(const Update& update, const EvictedSlots& evicted, int j) {
  __shared__ Group::Shared together;
  __shared__ float partial[warp_size];
  const int d = update.d;
  const std::int32_t merge_target = evicted.merge_target_of(j);
  if (merge_target < 0) return;
  Group group{};
  if (!group.collect(together, j, update.positions,
                     [&](int other) { return evicted.merge_target_of(other) == merge_target; }))
    return;
  const float inertia = update.counts[merge_target];
  const float total = group.sum(inertia, [&](int other) { return evicted.counts[other]; });
  move_key(update, merge_target, inertia, total, partial, [&](int c) {
    return group.sum(
        0.0f,
        [&](int other) {
          return make_float2(evicted.counts[other], evicted.keys[static_cast<std::int64_t>(other) * d + c]);
        },
        [](float sum, float2 next) { return fmaf(next.x, next.y, sum); });
  });
  if (threadIdx.x >= warp_size) return;
  WarpEntries entries(update.entries_of(merge_target));
  WarpEntries next(evicted.entries_of(group.members[0], update));
  for (int i = 0; i < group.count; ++i) {
    const WarpEntries other = next;
    if (i + 1 < group.count) next = WarpEntries(evicted.entries_of(group.members[i + 1], update));
    entries.merge_all(other);
  }
  entries.write(update.entries_of(merge_target));
  const float count = entries.total();
  if (threadIdx.x != 0) return;
  update.counts[merge_target] = count;
  update.usage[merge_target] = group.sum(update.usage[merge_target], [&](int other) { return evicted.usage[other]; });
}

// One block per position: the j-th miss is inserted into the j-th slot of `order`.
__device__ void insert(const Update& update, int t, const std::int32_t* order, std::int64_t candidates) {
  const int d = update.d;
  if (!update.is_miss(t)) {
    if (threadIdx.x == 0 && update.targets[t] < 0) update.assignments[t] = no_slot;
    return;
  }
  const int before = update.misses_before(t);
  const std::int32_t slot = before < candidates ? order[before] : -1;
  if (slot < 0) {
    if (threadIdx.x == 0) update.assignments[t] = no_slot;
    return;
  }
  const float* query = update.queries + static_cast<std::int64_t>(t) * d;
  for (int c = threadIdx.x; c < d; c += threads) update.write_key(slot, c, query[c]);
  if (threadIdx.x == 0) {
    update.assignments[t] = slot | inserted_flag | (update.counts[slot] > 0.0f ? evicted_flag : 0);
    update.entries_of(slot).begin(update.targets[t], update.places[t]);
    update.counts[slot] = 1.0f;
    update.usage[slot] = 1.0f;
  }
}

// The first blocks merge evicted slots into their targets; the others insert misses into the evicted slots.
__global__ void __launch_bounds__(threads)
    merge_and_insert_kernel(Update update, EvictedSlots evicted, const std::int32_t* order, std::int64_t candidates) {
  wait_previous_kernel_no_trigger();
  const int block = blockIdx.x, merging = static_cast<int>(gridDim.x) - update.positions;
  if (block < merging)
    merge_evicted(update, evicted, block);
  else
    insert(update, block - merging, order, candidates);
}

// Slots without content need no merge target, so they search no partition.
__global__ void __launch_bounds__(threads)
    skip_partitions_kernel(const std::int32_t* slots_of_rows, std::int64_t pairs, int nprobe, std::int32_t* searched) {
  wait_previous_kernel_no_trigger();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < pairs && slots_of_rows[i / nprobe] < 0) searched[i] = -1;
}

EvictedSlots make_evicted_slots(Context& ctx, const Update& update, std::int64_t candidates) {
  const std::int64_t positions = update.positions, entries = update.entries;
  EvictedSlots out{};
  out.keys = floats(ctx.scratch({positions, update.d}, DType::f32));
  out.slots_of_rows = ints(ctx.scratch({positions}, DType::i32));
  out.counts = floats(ctx.scratch({positions}, DType::f32));
  out.usage = floats(ctx.scratch({positions}, DType::f32));
  out.entry_counts = floats(ctx.scratch({entries, positions}, DType::f32));
  out.values = ints(ctx.scratch({entries, positions}, DType::i32));
  out.born = longs(ctx.scratch({entries, positions}, DType::i64));
  out.hit = longs(ctx.scratch({entries, positions}, DType::i64));
  out.nearest = reinterpret_cast<unsigned long long*>(longs(ctx.scratch({positions}, DType::i64)));
  out.closed = static_cast<bool*>(ctx.scratch({candidates}, DType::i32).raw());
  out.rows = ints(ctx.scratch({1}, DType::i32));
  return out;
}

// Finds merge targets for evicted slots, from the scores of their keys.
void find_merge_targets(Context& ctx, const Store& store, const MemorySettings& settings, const Update& update,
                        const EvictedSlots& evicted) {
  const std::int64_t positions = update.positions;
  const dim3 each(static_cast<unsigned>(positions));
  const auto consider = [&](const Scores& scores) {
    launch_dependent(ctx, merge_targets_kernel, each, dim3(threads), 0, update, evicted, scores);
  };
  if (searches_some_partitions(store, settings)) {
    const auto nprobe = static_cast<int>(partitions_to_search(store, settings));
    std::int32_t* searched = choose_partitions(ctx, store, evicted.keys, positions, nprobe);
    launch_dependent(ctx, skip_partitions_kernel, dim3(grid_for(positions * nprobe, threads)), dim3(threads), 0,
                     evicted.slots_of_rows, positions * nprobe, nprobe, searched);
    const PartitionVisits visits = make_visits(ctx, store, searched, positions, nprobe);
    const std::int64_t size = store.partition_size(), widest = partition_slots_at_once(size, visits.count);
    float* scores = floats(ctx.scratch({visits.count, widest}, DType::f32));
    for (std::int64_t first = 0; first < size; first += widest) {
      const std::int64_t width = std::min(size - first, widest);
      score_partitions(ctx, store, evicted.keys, visits, first, width, scores);
      consider({scores, static_cast<std::int32_t>(first), static_cast<std::int32_t>(width), visits});
    }
  } else if (finds_merge_targets_by_product(ctx, store)) {
    find_merge_targets_by_product(ctx, store, update, evicted);
  } else {
    float* scores = floats(ctx.scratch({positions, std::min(store.reach, slots_at_once)}, DType::f32));
    for (std::int64_t first = 0; first < store.reach; first += slots_at_once) {
      const std::int64_t last = std::min(store.reach, first + slots_at_once);
      score(ctx, store, evicted.keys, positions, first, last, scores);
      consider({scores, static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - first), {}});
    }
  }
}

}  // namespace

void learn(Context& ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
           const Tensor& places, const Matches& found, Store& store, Tensor& assignments) {
  const std::int64_t positions = queries.dim(0);
  if (positions == 0) return;
  if (positions > max_window)
    failed(Code::size_unsupported, "an update has {} positions, more than the maximum of {}", positions, max_window);
  ArenaScope scope(*ctx.arena);
  const Update update{floats(queries),
                      reinterpret_cast<const unsigned long long*>(longs(found.near)),
                      ints(targets),
                      longs(places),
                      floats(store.keys),
                      halves(found.key_halves),
                      floats(store.counts),
                      floats(store.usage),
                      floats(store.entry_counts_or_totals()),
                      ints(store.values),
                      ints(assignments),
                      longs(store.born),
                      longs(store.hit),
                      store.slots(),
                      static_cast<float>(settings.threshold),
                      static_cast<float>(1 - settings.decay),
                      static_cast<int>(queries.dim(1)),
                      static_cast<int>(store.entries()),
                      static_cast<int>(positions)};
  // Slots from reach on have usage 0, so as many of them as there are positions are enough candidates. Inactive
  // partitions have no candidates.
  const bool one_part = store.partitions() == 1;
  const std::int64_t candidates = one_part ? std::min(store.slots(), store.reach + positions) : store.reach;
  const bool ranks = one_part && candidates <= max_ranked, merges = settings.merge_evicted && store.reach > 0;
  const EvictedSlots evicted = merges ? make_evicted_slots(ctx, update, candidates) : EvictedSlots{};
  const dim3 each(static_cast<unsigned>(positions));
  const std::int32_t* order = nullptr;
  const std::int64_t ordered = one_part ? candidates : positions;
  bool found_targets = false;
  if (ranks) {
    const Ranked ranked = apply_matches_and_rank(ctx, update, evicted, static_cast<std::int32_t>(candidates));
    order = ranked.order;
    found_targets = merges && finds_merge_targets_by_product(ctx, store);
    if (found_targets)
      find_merge_targets_and_copy(ctx, store, update, evicted, ranked);
    else
      SOME_CUDA_CHECK(cudaMemcpyAsync(update.usage, ranked.usage, sizeof(float) * static_cast<std::size_t>(candidates),
                                      cudaMemcpyDeviceToDevice, ctx.cuda->stream));
  } else {
    std::int32_t* numbers = ints(ctx.scratch({candidates}, DType::i32));
    launch_dependent(ctx, matches_kernel, dim3(each.x + grid_for(candidates, threads)), dim3(threads), 0, update,
                     candidates, numbers, evicted.closed);
    order = one_part ? sort_pairs(ctx, reinterpret_cast<const std::int32_t*>(floats(store.usage)), numbers, candidates,
                                  usage_bits)
                           .items
                     : least_used_slots(ctx, store, settings, update, numbers, positions);
  }
  if (merges && !found_targets) {
    copy_evicted_kernel<<<each, threads, 0, ctx.cuda->stream>>>(update, evicted, order, ordered);
    SOME_CUDA_CHECK(cudaGetLastError());
    find_merge_targets(ctx, store, settings, update, evicted);
  }
  const dim3 blocks(merges ? 2 * each.x : each.x);
  if (merges) {
    launch_dependent(ctx, merge_and_insert_kernel, blocks, dim3(threads), 0, update, evicted, order, ordered);
  } else {
    merge_and_insert_kernel<<<blocks, threads, 0, ctx.cuda->stream>>>(update, evicted, order, ordered);
    SOME_CUDA_CHECK(cudaGetLastError());
  }
  if (!one_part) return update_partitions(ctx, update, positions, store);
  store.reach = std::min(store.slots(), (candidates + reach_grain - 1) / reach_grain * reach_grain);
}

}  // namespace some::cuda
