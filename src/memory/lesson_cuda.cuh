// A lesson on the GPU: what it is about, and what it has more to do in a store of several parts.
#pragma once

#include "memory/entries.h"
#include "memory/store_cuda.cuh"

namespace some::memory::cuda {

constexpr int usage_bits = 31;  // floats that are not negative have the order of their bits

struct Lesson {
  const float *queries, *product;
  const std::int32_t *targets, *nearest;
  const long long* places;
  float *keys, *counts, *usage, *tallies;
  std::int32_t *values, *fates;
  long long *born, *hit;
  std::int64_t slots;
  float match, kept;  // kept: of the usage, by decay
  int d, entries, positions;

  __device__ Entries<float, long long> entries_of(std::int32_t slot) const {
    return {values + slot, tallies + slot, born + slot, hit + slot, slots, entries};
  }

  // Everything is read at once: && would wait for one number before it asks for the next.
  __device__ bool is_hit(int t) const { return (targets[t] >= 0) & (nearest[t] >= 0) & (product[t] > match); }
  __device__ bool is_miss(int t) const { return (targets[t] >= 0) & !((nearest[t] >= 0) & (product[t] > match)); }
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

// The slots that misses take, in a store of several parts: [positions], with -1 for none.
const std::int32_t* slots_used_least(Context& ctx, const Store& store, const MemorySettings& settings,
                                     const Lesson& lesson, const std::int32_t* numbers, std::int64_t positions);
// Moves the centres towards what was taken in, and divides parts that have become full.
void tend_parts(Context& ctx, const Lesson& lesson, std::int64_t positions, Store& store);

}  // namespace some::memory::cuda
