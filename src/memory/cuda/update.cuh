// Memory update on the GPU: its arguments, matches, the eviction order in small stores, and the additional steps for
// stores with several partitions.
#pragma once

#include "memory/cuda/entries.cuh"
#include "memory/cuda/grouping.cuh"
#include "memory/cuda/split_keys.cuh"

namespace some::cuda {

constexpr int usage_bits = 31;  // floats that are not negative are ordered like their bits

struct Update {
  const float* queries;
  const unsigned long long* near;
  const std::int32_t* targets;
  const long long* places;
  float* keys;
  __half* halves;  // copy of the keys in halves (memory/cuda/split_keys.cuh), or null
  float *counts, *usage, *entry_counts;
  std::int32_t *values, *assignments;
  long long *born, *hit;
  std::int64_t slots;
  float match, kept;  // kept: 1 - decay, the factor on usage
  int d, entries, positions;

  __device__ Entries<float, long long> entries_of(std::int32_t slot) const {
    return {values + slot, entry_counts + slot, born + slot, hit + slot, slots, entries};
  }

  __device__ std::int32_t nearest(int t) const { return slot_of(near[t]); }
  __device__ bool is_near(unsigned long long one) const { return (one != 0) & (product_of(one) > match); }
  // Loads all operands at once: && would wait for the first before loading the second.
  __device__ bool is_hit(int t) const { return (targets[t] >= 0) & is_near(near[t]); }
  __device__ bool is_miss(int t) const { return (targets[t] >= 0) & !is_near(near[t]); }
  __device__ void write_key(std::int32_t slot, int column, float number) const {
    keys[static_cast<std::int64_t>(slot) * d + column] = number;
    if (halves != nullptr) write_halves(halves + static_cast<std::int64_t>(slot) * 2 * d, column, number);
  }
  // Returns a slot's usage after decay and this many matches.
  __device__ float used(float before, int hits) const {
    return __fadd_rn(__fmul_rn(before, kept), static_cast<float>(hits));
  }
  // All threads must call it.
  __device__ int misses_before(int end) const {
    int sum = 0;
    for (int base = 0; base < end; base += threads) {
      const int t = base + static_cast<int>(threadIdx.x);
      sum += __syncthreads_count(t < end && is_miss(t));
    }
    return sum;
  }
};

// Content of the evicted slots; row j belongs to the j-th of them. It is copied, since insertions overwrite these slots
// while the content is still being merged. Rows of slots without content are undefined.
struct EvictedSlots {
  float* keys;                  // [T, d]
  std::int32_t* slots_of_rows;  // [T]: slots, or -1
  float *counts, *usage;        // [T]
  float* entry_counts;          // [K, T], as are the following
  std::int32_t* values;
  long long *born, *hit;
  unsigned long long* nearest;  // [T]: the merge targets, packed
  bool* closed;                 // per candidate: true if nothing can be merged into it, because it is empty or evicted
  std::int32_t* rows;           // [1]: rows from this one on have no content

  __device__ Entries<float, long long> entries_of(int j, const Update& update) const {
    return {values + j, entry_counts + j, born + j, hit + j, update.positions, update.entries};
  }
  // slot: -1 if there is no content.
  __device__ void set_evicted(int j, std::int32_t slot) const {
    slots_of_rows[j] = slot;
    nearest[j] = 0;
  }
  // Copies everything but the key, with the slot's current usage; called by one warp.
  __device__ void copy(const Update& update, int j, std::int32_t slot, const float* slot_usage) const {
    WarpEntries(update.entries_of(slot)).write(entries_of(j, update));
    if (threadIdx.x % warp_size != 0) return;
    counts[j] = update.counts[slot];
    usage[j] = slot_usage[slot];
  }
  __device__ std::int32_t merge_target_of(int j) const { return slots_of_rows[j] < 0 ? -1 : slot_of(nearest[j]); }
};

// Sets a slot's key to normalize((inertia * key + sum) / total), where sum(c) returns column c of the sum.
template <typename Sum>
__device__ __forceinline__ void move_key(const Update& update, std::int32_t slot, float inertia, float total,
                                         float* partial, const Sum& sum) {
  const int d = update.d;
  float* const key = update.keys + static_cast<std::int64_t>(slot) * d;
  float square = 0.0f;
  for (int c = threadIdx.x; c < d; c += threads) {
    const float moved = (inertia * key[c] + sum(c)) / total;
    key[c] = moved;
    square = fmaf(moved, moved, square);
  }
  const float inverse = 1.0f / fmaxf(sqrtf(block_sum(square, partial)), shortest);
  for (int c = threadIdx.x; c < d; c += threads) update.write_key(slot, c, key[c] * inverse);
}

// One block per position that may match: the first position that matched a slot moves its key, for all that did, in
// order. usage: array of the store that receives the slot's new usage; null: the caller writes it. All threads must
// call it.
__device__ __forceinline__ void apply_matches(const Update& update, int t, Group::Shared& together, float* usage) {
  __shared__ float partial[warp_size];
  const int d = update.d;
  if (!update.is_hit(t)) return;
  const std::int32_t slot = update.nearest(t);
  if (threadIdx.x == 0) update.assignments[t] = slot;
  Group group{};
  if (!group.collect(together, t, update.positions,
                     [&](int other) { return update.is_hit(other) && update.nearest(other) == slot; }))
    return;
  const float inertia = update.counts[slot], more = static_cast<float>(group.count), total = inertia + more;
  move_key(update, slot, inertia, total, partial, [&](int c) {
    return group.sum(0.0f, [&](int other) { return update.queries[static_cast<std::int64_t>(other) * d + c]; });
  });
  if (threadIdx.x >= warp_size) return;
  if (threadIdx.x == 0) {
    update.counts[slot] = total;
    if (usage != nullptr) usage[slot] = update.used(update.usage[slot], group.count);
    if (update.entries == 1) update.hit[slot] = update.places[group.members[group.count - 1]];
  }
  if (update.entries == 1) return;
  WarpEntries entries(update.entries_of(slot));
  for (int base = 0; base < group.count; base += warp_size) {
    const int here = min(warp_size, group.count - base);
    const int own = group.members[base + min(static_cast<int>(threadIdx.x), here - 1)];
    const std::int32_t token = update.targets[own];
    const long long place = update.places[own];
    for (int i = 0; i < here; ++i) entries.found(__shfl_sync(full_warp, token, i), __shfl_sync(full_warp, place, i));
  }
  entries.write(update.entries_of(slot));
}

// For stores with few slots in one partition: one kernel applies matches and ranks slots for eviction.
struct Ranked {
  std::int32_t* order;  // [positions]: evicted slots, least used first
  float* usage;         // [candidates]: usage of every slot after decay and matches; the store's usage is unchanged
  std::int32_t candidates;
};
constexpr std::int64_t max_ranked = 8192;
// Fills the slot numbers of the evicted slots, if given room, but not their content. The result is in the arena.
Ranked apply_matches_and_rank(Context& ctx, const Update& update, const EvictedSlots& evicted, std::int32_t candidates);

// Finds merge targets with one product over all keys; requires that slots can hold several tokens, so that any slot may
// be one.
bool finds_merge_targets_by_product(const Context& ctx, const Store& store);
void find_merge_targets_by_product(Context& ctx, const Store& store, const Update& update, const EvictedSlots& evicted);
// The same, and also copies content and usage.
void find_merge_targets_and_copy(Context& ctx, const Store& store, const Update& update, const EvictedSlots& evicted,
                                 const Ranked& ranked);

// Returns the slots that misses are inserted into, in a store of several partitions: [positions], -1 for none.
const std::int32_t* least_used_slots(Context& ctx, const Store& store, const MemorySettings& settings,
                                     const Update& update, const std::int32_t* numbers, std::int64_t positions);
// Adds the new queries to the centroids, and splits full partitions.
void update_partitions(Context& ctx, const Update& update, std::int64_t positions, Store& store);

}  // namespace some::cuda
