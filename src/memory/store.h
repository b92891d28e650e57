// The store of a memory (spec 8): its slots on the device, and the operations on them. A window of text goes through
// queries, search, mix and learn, in this order; everything is in master precision.
#pragma once

#include <span>
#include <vector>

#include "base/rooms.h"
#include "memory/settings.h"
#include "ops/op.h"

namespace some::memory {

// Where a token was read: which of the memory's texts, and which of its tokens.
struct Place {
  std::int64_t text = 0, offset = 0;
};
inline constexpr int offset_bits = 40;
inline std::int64_t packed(const Place& place) { return (place.text << offset_bits) | place.offset; }
inline Place unpacked(std::int64_t place) {
  return {place >> offset_bits, place & ((std::int64_t{1} << offset_bits) - 1)};
}
inline constexpr std::int64_t nowhere = -1;  // of an empty slot

struct Store {
  Tensor mean;     // [d]
  Tensor keys;     // [M, d]
  Tensor values;   // i32 [K, M]: tokens; -1: none. An empty slot has none, any other has one in row 0
  Tensor tallies;  // [K, M]: how often each was found; they sum to n. Where K is 1 there are only the counts
  Tensor counts;   // [M]: n
  Tensor usage;    // [M]: u
  Tensor shares;   // [sharpnesses * 7]: the weights of the mixture (omega), the shares of a sharpness beside each other
  Tensor born;     // i64 [K, M]: the packed place where each token was first met
  Tensor hit;      // i64 [K, M]: where it was last found (at first its birth)
  Tensor centres;  // [P, d]: of each part the sum of the queries it has taken in; only where there are several parts
  std::int64_t reach = 0;  // slots from here on are empty: they need not be searched. Part of the state, since a matrix
                           // product of another width may round differently. Of several parts it is the end of one

  std::int64_t slots() const { return counts.dim(0); }
  std::int64_t entries() const { return values.dim(0); }  // K
  std::int64_t parts() const { return centres ? centres.dim(0) : 1; }
  std::int64_t part_size() const { return slots() / parts(); }      // part p has the slots from p * part_size() on
  std::int64_t parts_begun() const { return reach / part_size(); }  // where there are several: those that are looked at
  const Tensor& tallied() const { return entries() == 1 ? counts : tallies; }
};

// An empty one. mean: [d] numbers of any type.
Store make_store(Context& ctx, const MemorySettings& settings, const Tensor& mean);
// Weights of the mixture that nothing is known of yet: all equal.
Tensor equal_shares(Context& ctx, const MemorySettings& settings);

// queries [T, d] = normalize(states - mean). states: [T, d] compute.
SOME_OP(void, make_queries, (Context & ctx, const Tensor& states, const Tensor& mean, Tensor& queries),
        (ctx, states, mean, queries))

struct Found {
  Tensor said;     // [sharpnesses, T]: the memory's probability of the target
  Tensor nearest;  // i32 [T]: of the slots that hold the target the one whose key is nearest; -1: none does
  Tensor product;  // [T]: its key . query
  // Of a GPU:
  Tensor near;                      // i64 [T]: both in one number (memory/store_cuda.cuh), 0 before the search
  Tensor query_halves, key_halves;  // what products are made of (memory/halves_cuda.cuh); empty: made when needed
};
Found make_found(Context& ctx, const MemorySettings& settings, std::int64_t positions);  // on the arena

// The same for windows of a text that are searched, and perhaps learnt, one after another: what they have in common is
// made once, and kept up to date by the lessons. The windows are rows of the queries.
struct Rows {
  std::int64_t begin, end;
};
std::vector<Found> make_found(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                              std::span<const Rows> windows);
SOME_OP(void, split_once,
        (Context & ctx, const Store& store, const Tensor& queries, std::span<const Rows> windows,
         std::vector<Found>& found),
        (ctx, store, queries, windows, found))

// What the store says of each target. Positions with a negative target find nothing. Where the store has several parts
// each position looks into the settings.look of them whose centres are nearest to its query (memory/parts.h).
SOME_OP(void, search,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& targets, Found& found),
        (ctx, store, settings, queries, targets, found))

// Reads the targets in order: nll[t], what the model alone gives the target, is replaced by what the mixture gives it,
// and after each the weights learn. Positions with a negative target are passed over.
SOME_OP(void, mix,
        (Context & ctx, const MemorySettings& settings, const Found& found, const Tensor& targets, Tensor& shares,
         Tensor& nll),
        (ctx, settings, found, targets, shares, nll))

// What becomes of a position in a lesson: the slot it hit, the slot it was born in with born_flag (and lost_flag where
// the slot held something before), or nothing.
inline constexpr std::int32_t born_flag = std::int32_t{1} << 30, lost_flag = std::int32_t{1} << 29, no_fate = -1;
inline std::int32_t slot_of_fate(std::int32_t fate) { return fate & ~(born_flag | lost_flag); }
static_assert(most_slots <= lost_flag);

// One lesson, of at most most_window positions: those near a key of their value move it, the others are born in the
// slots used least, which leave what they held to their heirs. places: i64 [T], packed; fates: i32 [T], overwritten.
// store.reach is moved on. Parts that have become full are divided at the end, which gives slots other numbers.
SOME_OP(void, learn,
        (Context & ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
         const Tensor& places, const Found& found, Store& store, Tensor& fates),
        (ctx, settings, queries, targets, places, found, store, fates))

// Settling (spec 8). The slot that suits each position best, homes: i32 [T]; -1 where the target is negative or nothing
// is held yet.
SOME_OP(void, find_homes,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& targets, Tensor& homes),
        (ctx, store, settings, queries, targets, homes))
// At most most_window positions move into their homes in another store, whose keys are sums of queries until
// settle_down makes keys of them, counts and usages of the tallies, and centres of the parts. places: i64 [T], packed.
SOME_OP(void, move_in,
        (Context & ctx, const Tensor& queries, const Tensor& targets, const Tensor& places, const Tensor& homes,
         Store& store),
        (ctx, queries, targets, places, homes, store))
SOME_OP(void, settle_down, (Context & ctx, Store& store), (ctx, store))
// The end of a round: it settles down, keeps the weights of the store that it was made from, and takes its place.
void take_place(Context& ctx, Store settled, Store& store);

// How much of each row's answer every slot has: weights [R, reach] = sum over sharpnesses of say[r, s] * the slot's
// weight at that sharpness. say: [R, sharpnesses] master; weights: zeros where nothing was learnt yet.
SOME_OP(void, slot_weights,
        (Context & ctx, const Store& store, const MemorySettings& settings, const Tensor& queries, const Tensor& say,
         Tensor& weights),
        (ctx, store, settings, queries, say, weights))

}  // namespace some::memory
