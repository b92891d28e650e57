// Radix sort on the device, and segment sums: sums of rows by a sorted key, for the gradient of an embedding and the
// query sums of the key store. CUDA only.
#pragma once

#include <span>

#include "kernels/cuda/toolkit.cuh"

namespace some::cuda {

// Pairs sorted by key. The sort is stable: equal keys keep their order. Keys must be at least 0 and below 2^bits.
// Results are in the context's arena.
struct SortedPairs {
  const std::int32_t* keys;
  const std::int32_t* items;
};
SortedPairs sort_pairs(Context& ctx, const std::int32_t* keys, const std::int32_t* items, std::int64_t count, int bits);

void sort_pairs_into(Context& ctx, const std::int32_t* keys, const std::int32_t* items, std::int64_t count, int bits,
                     std::int32_t* sorted_keys, std::int32_t* sorted_items);

struct SortedLongs {
  const long long* keys;
  const std::int32_t* items;
};
SortedLongs sort_pairs(Context& ctx, const long long* keys, const std::int32_t* items, std::int64_t count,
                       int bits = 64);

int bits_for(std::int64_t largest_key);

// Computes target[key, :] += scale * sum of values[item / divisor, :] over the items of that key, in their order; keys
// at or above `keys_end` are left out. values: [*, d] f32 or bf16; target: [keys_end, d]. The order of additions
// depends only on the keys. Several sums of equal shapes share one launch.
struct SegmentSums {
  SortedPairs sorted;
  const void* values;
  float* target;
};
inline constexpr int max_segment_sums = 16;  // per call
void add_segment_sums(Context& ctx, std::span<const SegmentSums> sums, std::int64_t count, std::int32_t keys_end,
                      int divisor, DType type, int d, float scale);
// Returns the bytes of scratch memory that one sum needs.
std::int64_t segment_sums_bytes(std::int64_t count, int d);

}  // namespace some::cuda
