// The store of a memory (spec 8): its slots on the device, and the operations on them. A window of text goes through
// queries, search, mix and learn, in this order; everything is in master precision.
#pragma once

#include <span>
#include <vector>

#include "memory/settings.h"
#include "runtime/op.h"

namespace some {

// Where a token was read: which of the memory's texts, and which of its tokens.
struct Place {
  std::int64_t text = 0, offset = 0;
};
inline constexpr int offset_bits = 40;
inline std::int64_t packed(const Place& place) { return (place.text << offset_bits) | place.offset; }
inline Place unpacked(std::int64_t place) {
  return {place >> offset_bits, place & ((std::int64_t{1} << offset_bits) - 1)};
}
inline constexpr std::int64_t no_place = -1;  // of an empty slot

struct Store {
  Tensor mean;          // [d]
  Tensor keys;          // [M, d]
  Tensor values;        // i32 [K, M]: tokens; -1: none. An empty slot has none, any other has one in row 0
  Tensor entry_counts;  // [K, M]: how often each was found; they sum to n. Where K is 1 there are only the counts
  Tensor counts;        // [M]: n
  Tensor usage;         // [M]: u
  Tensor shares;   // [sharpnesses * 7]: the weights of the mixture (omega), the shares of a sharpness beside each other
  Tensor born;     // i64 [K, M]: the packed place where each token was first met
  Tensor hit;      // i64 [K, M]: where it was last found (at first its birth)
  Tensor centres;  // [P, d]: of each part the sum of the queries it has taken in; only where there are several parts
  std::int64_t reach = 0;  // slots from here on are empty: they need not be searched. Part of the state, since a matrix
                           // product of another width may round differently. Of several parts it is the end of one

  std::int64_t slots() const { return counts.dim(0); }
  std::int64_t entries() const { return values.dim(0); }  // K
  std::int64_t parts() const { return centres ? centres.dim(0) : 1; }
  std::int64_t partition_size() const {
    return slots() / parts();
  }  // part p has the slots from p * partition_size() on
  std::int64_t partitions_active() const {
    return reach / partition_size();
  }  // where there are several: those that are looked at
  const Tensor& entry_counts_or_totals() const { return entries() == 1 ? counts : entry_counts; }
};

// An empty one. mean: [d] numbers of any type.
Store make_store(Context& ctx, const MemorySettings& settings, const Tensor& mean);
// Weights of the mixture that nothing is known of yet: all equal.
Tensor equal_shares(Context& ctx, const MemorySettings& settings);

// queries [T, d] = normalize(states - mean). states: [T, d] compute.
SOME_OP(void, make_queries, (Context & ctx, const Tensor& states, const Tensor& mean, Tensor& queries),
        (ctx, states, mean, queries))

struct Matches {
  Tensor said;     // [sharpnesses, T]: the memory's probability of the target
  Tensor nearest;  // i32 [T]: of the slots that hold the target the one whose key is nearest; -1: none does
  Tensor product;  // [T]: its key . query
  // Of a GPU:
  Tensor near;                      // i64 [T]: both in one number (memory/cuda/store.cuh), 0 before the search
  Tensor query_halves, key_halves;  // what products are made of (memory/cuda/split_keys.cuh); empty: made when needed
};
Matches make_matches(Context& ctx, const MemorySettings& settings, std::int64_t positions);  // on the arena

// The same for windows of a text that are searched, and perhaps learnt, one after another: what they have in common is
// made once, and kept up to date by the lessons. The windows are rows of the queries.
struct Rows {
  std::int64_t begin, end;
};
std::vector<Matches> make_matches(Context& ctx, const Store& store, const MemorySettings& settings,
                                  const Tensor& queries, std::span<const Rows> windows);
SOME_OP(void, split_windows,
        (Context & ctx, const Store& store, const Tensor& queries, std::span<const Rows> windows,
         std::vector<Matches>& found),
        (ctx, store, queries, windows, found))

// What the store says of each target. Positions with a negative target find nothing. Where the store has several parts
// each position looks into the settings.look of them whose centres are nearest to its query (memory/partitions.h).
SOME_OP(void, search,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& targets, Matches& found),
        (ctx, store, settings, queries, targets, found))

// Reads the targets in order: nll[t], what the model alone gives the target, is replaced by what the mixture gives it,
// and after each the weights learn. Positions with a negative target are passed over.
SOME_OP(void, mix,
        (Context & ctx, const MemorySettings& settings, const Matches& found, const Tensor& targets, Tensor& shares,
         Tensor& nll),
        (ctx, settings, found, targets, shares, nll))

// What becomes of a position in a lesson: the slot it hit, the slot it was born in with inserted_flag (and evicted_flag
// where the slot held something before), or nothing.
inline constexpr std::int32_t inserted_flag = std::int32_t{1} << 30, evicted_flag = std::int32_t{1} << 29, no_slot = -1;
inline std::int32_t slot_of_assignment(std::int32_t assignment) { return assignment & ~(inserted_flag | evicted_flag); }
static_assert(max_slots <= evicted_flag);

// One lesson, of at most max_window positions: those near a key of their value move it, the others are born in the
// slots used least, which leave what they held to their heirs. places: i64 [T], packed; fates: i32 [T], overwritten.
// store.reach is moved on. Parts that have become full are divided at the end, which gives slots other numbers.
SOME_OP(void, learn,
        (Context & ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
         const Tensor& places, const Matches& found, Store& store, Tensor& assignments),
        (ctx, settings, queries, targets, places, found, store, assignments))

// Settling (spec 8). The slot that suits each position best, homes: i32 [T]; -1 where the target is negative or nothing
// is held yet.
SOME_OP(void, assign_slots,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& targets, Tensor& assigned_slots),
        (ctx, store, settings, queries, targets, assigned_slots))
// At most max_window positions move into their homes in another store, whose keys are sums of queries until
// finish_refinement makes keys of them, counts and usages of the tallies, and centres of the parts. places: i64 [T],
// packed.
SOME_OP(void, insert_assigned,
        (Context & ctx, const Tensor& queries, const Tensor& targets, const Tensor& places,
         const Tensor& assigned_slots, Store& store),
        (ctx, queries, targets, places, assigned_slots, store))
SOME_OP(void, finish_refinement, (Context & ctx, Store& store), (ctx, store))
// The end of a round: it settles down, keeps the weights of the store that it was made from, and takes its place.
void replace_store(Context& ctx, Store settled, Store& store);

// How much of each row's answer every slot has: weights [R, reach] = sum over sharpnesses of say[r, s] * the slot's
// weight at that sharpness. say: [R, sharpnesses] master; weights: zeros where nothing was learnt yet.
SOME_OP(void, slot_weights,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries, const Tensor& say,
         Tensor& weights),
        (ctx, store, settings, queries, say, weights))

}  // namespace some
