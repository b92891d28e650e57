// Groups positions of a window that change the same slot or partition, on the GPU.
#pragma once

#include "memory/cuda/store.cuh"
#include "memory/settings.h"

namespace some::cuda {

constexpr int max_words = static_cast<int>(max_window / warp_size);

// Positions that are processed together, in order: `members`. The block of the first member does all the work.
struct Group {
  struct Shared {
    unsigned words[max_words];  // one bit per position
    std::uint16_t members[max_window];
  };
  static_assert(max_words <= threads && max_window <= 65536);
  const std::uint16_t* members;
  int count;

  // Collects the positions for which `same` holds; returns true if t is the first of them. All threads must call it.
  template <typename Same>
  __device__ bool collect(Shared& shared, int t, int positions, const Same& same) {
    bool earlier = false;
    for (int base = 0; base < positions; base += threads) {
      const int other = base + static_cast<int>(threadIdx.x);
      const bool is_same = other < positions && same(other);
      earlier = earlier || (is_same && other < t);
      const unsigned word = __ballot_sync(full_warp, is_same);
      if (threadIdx.x % warp_size == 0 && other < positions) shared.words[other / warp_size] = word;
    }
    if (__syncthreads_or(earlier)) return false;
    const int mine = threadIdx.x, words = (positions + warp_size - 1) / warp_size;
    int before = 0;
    members = shared.members;
    count = 0;
    for (int w = t / warp_size; w < words; ++w) {
      const int here = __popc(shared.words[w]);
      before += w < mine ? here : 0;
      count += here;
    }
    if (mine >= t / warp_size && mine < words) {
      for (unsigned left = shared.words[mine]; left != 0; left &= left - 1)
        shared.members[before++] = static_cast<std::uint16_t>(mine * warp_size + __ffs(static_cast<int>(left)) - 1);
    }
    __syncthreads();
    return true;
  }
  // Returns add(add(sum, value of the first member), value of the second) and so on, with several loads in flight.
  template <typename Value, typename Add>
  __device__ float sum(float sum, const Value& value, const Add& add) const {
    constexpr int together = 8;
    for (int base = 0; base < count; base += together) {
      decltype(value(0)) next[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (base + i < count) next[i] = value(members[base + i]);
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (base + i < count) sum = add(sum, next[i]);
      }
    }
    return sum;
  }
  template <typename Value>
  __device__ float sum(float start, const Value& value) const {
    return sum(start, value, [](float so_far, float next) { return so_far + next; });
  }
};

}  // namespace some::cuda
