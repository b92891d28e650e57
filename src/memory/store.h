// The store of a memory (spec 8): its slots on the device, and the operations on them. Each window of text runs
// make_queries, search, mix and learn, in this order; everything is in master precision.
#pragma once

#include <span>
#include <vector>

#include "memory/settings.h"
#include "runtime/op.h"

namespace some {

// Position of a token in the memory's texts: index of the text and of its token.
struct Place {
  std::int64_t text = 0, offset = 0;
};
inline constexpr int offset_bits = 40;
inline std::int64_t packed(const Place& place) { return (place.text << offset_bits) | place.offset; }
inline Place unpacked(std::int64_t place) {
  return {place >> offset_bits, place & ((std::int64_t{1} << offset_bits) - 1)};
}
inline constexpr std::int64_t no_place = -1;  // the place of an empty slot

struct Store {
  Tensor mean;          // [d]
  Tensor keys;          // [M, d]
  Tensor values;        // i32 [K, M]: tokens; -1: none. Row 0 of a slot is -1 only if the slot is empty
  Tensor entry_counts;  // [K, M]: count of each token; they sum to n. Missing if K is 1: then only `counts` exists
  Tensor counts;        // [M]: n
  Tensor usage;         // [M]: u
  Tensor shares;        // [betas * 7]: mixture weights (omega), the shares of one beta contiguous
  Tensor born;          // i64 [K, M]: packed place where each token was first inserted
  Tensor hit;           // i64 [K, M]: packed place where it was last matched (initially that of its insertion)
  Tensor centroids;     // [P, d]: centroid of each partition, the sum of the queries assigned to it; only with several
                        // partitions
  // Slots from here on are empty and need not be searched. Part of the state, since a matrix product of another width
  // may round differently. With several partitions, the end of a partition.
  std::int64_t reach = 0;

  std::int64_t slots() const { return counts.dim(0); }
  std::int64_t entries() const { return values.dim(0); }  // K
  std::int64_t partitions() const { return centroids ? centroids.dim(0) : 1; }
  std::int64_t partition_size() const {
    return slots() / partitions();
  }  // partition p has the slots from p * partition_size() on
  std::int64_t partitions_active() const {
    return reach / partition_size();
  }  // with several partitions: the number that is searched
  const Tensor& entry_counts_or_totals() const { return entries() == 1 ? counts : entry_counts; }
};

// Returns an empty store. mean: [d] numbers of any type.
Store make_store(Context& ctx, const MemorySettings& settings, const Tensor& mean);
// Returns the initial mixture weights: all equal.
Tensor equal_shares(Context& ctx, const MemorySettings& settings);

// queries [T, d] = normalize(states - mean). states: [T, d] compute.
SOME_OP(void, make_queries, (Context & ctx, const Tensor& states, const Tensor& mean, Tensor& queries),
        (ctx, states, mean, queries))

struct Matches {
  Tensor target_prob;  // [betas, T]: the memory's probability of the target
  Tensor nearest;      // i32 [T]: the slot with the nearest key among those that hold the target; -1: none
  Tensor product;      // [T]: product of that key and the query
  // GPU only:
  Tensor near;  // i64 [T]: nearest and product packed into one number (memory/cuda/store.cuh), 0 before the search
  Tensor query_halves, key_halves;  // operands of products (memory/cuda/split_keys.cuh); empty: computed when needed
};
Matches make_matches(Context& ctx, const MemorySettings& settings, std::int64_t positions);  // on the arena

// The same for windows of a text that are searched, and possibly learned, one after another: shared data is computed
// once and kept up to date by the updates. The windows are row ranges of the queries.
struct Rows {
  std::int64_t begin, end;
};
std::vector<Matches> make_matches(Context& ctx, const Store& store, const MemorySettings& settings,
                                  const Tensor& queries, std::span<const Rows> windows);
SOME_OP(void, split_windows,
        (Context & ctx, const Store& store, const Tensor& queries, std::span<const Rows> windows,
         std::vector<Matches>& found),
        (ctx, store, queries, windows, found))

// Computes the memory's probability of each target. Positions with a negative target are skipped. If the store has
// several partitions, each position searches the settings.nprobe of them with the centroids nearest to its query
// (memory/partitions.h).
SOME_OP(void, search,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& targets, Matches& found),
        (ctx, store, settings, queries, targets, found))

// Processes the targets in order: replaces nll[t], the model's loss, by the loss of the mixture, and updates the
// mixture weights after each target. Positions with a negative target are skipped.
SOME_OP(void, mix,
        (Context & ctx, const MemorySettings& settings, const Matches& found, const Tensor& targets, Tensor& shares,
         Tensor& nll),
        (ctx, settings, found, targets, shares, nll))

// Result of a position in an update: the slot it matched, the slot it was inserted into with inserted_flag (and
// evicted_flag if the slot contents something before), or no_slot.
inline constexpr std::int32_t inserted_flag = std::int32_t{1} << 30, evicted_flag = std::int32_t{1} << 29, no_slot = -1;
inline std::int32_t slot_of_assignment(std::int32_t assignment) { return assignment & ~(inserted_flag | evicted_flag); }
static_assert(max_slots <= evicted_flag);

// One update, of at most max_window positions. Positions near a key of their token move that key. The others are
// inserted into the least used slots, whose content is merged into their nearest neighbors (with
// settings.merge_evicted) or dropped. places: i64 [T], packed; assignments: i32 [T], overwritten. Advances store.reach.
// Finally splits full partitions, which renumbers slots.
SOME_OP(void, learn,
        (Context & ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
         const Tensor& places, const Matches& found, Store& store, Tensor& assignments),
        (ctx, settings, queries, targets, places, found, store, assignments))

// k-means refinement (spec 8, "Refinement"): assigns each position to its best slot, assigned_slots: i32 [T]; -1 if the
// target is negative or the store is empty.
SOME_OP(void, assign_slots,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& targets, Tensor& assigned_slots),
        (ctx, store, settings, queries, targets, assigned_slots))
// Inserts at most max_window positions into their assigned slots of another store. Its keys are sums of queries until
// finish_refinement normalizes them and computes counts and usages from the token counts, and the centroids. places:
// i64 [T], packed.
SOME_OP(void, insert_assigned,
        (Context & ctx, const Tensor& queries, const Tensor& targets, const Tensor& places,
         const Tensor& assigned_slots, Store& store),
        (ctx, queries, targets, places, assigned_slots, store))
SOME_OP(void, finish_refinement, (Context & ctx, Store& store), (ctx, store))
// Ends a refinement pass: finishes `refined`, copies the mixture weights of `store` to it, and replaces `store` by it.
void replace_store(Context& ctx, Store refined, Store& store);

// Computes the weight of every slot in each row's prediction: weights [R, reach] = sum over betas of memory_weights[r,
// s] * the slot's weight at that beta. memory_weights: [R, betas] master; weights: zeros if the store is empty.
SOME_OP(void, slot_weights,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& memory_weights, Tensor& weights),
        (ctx, store, settings, queries, memory_weights, weights))

}  // namespace some
