// The operations of memory/entries.h for a slot whose entries one warp holds in registers. A single thread would wait
// for a memory read in every step; a warp examines all entries at once.
#pragma once

#include "kernels/cuda/toolkit.cuh"
#include "memory/entries.h"
#include "memory/settings.h"

namespace some::cuda {

struct WarpEntries {
  static constexpr int each = static_cast<int>(max_values / warp_size);  // entries per lane: lane, lane + 32, ...
  static constexpr int none = static_cast<int>(max_values);
  std::int32_t value[each];
  float token_count[each];
  long long born[each], hit[each];
  int count;

  __device__ explicit WarpEntries(const Entries<float, long long>& from) : count(from.count) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const bool there = at(i) < count;
      const std::int64_t entry = there ? at(i) * from.stride : 0;
      value[i] = there ? from.values[entry] : -1;
      token_count[i] = there ? from.entry_counts[entry] : INFINITY;
      born[i] = there ? from.born[entry] : -1;
      hit[i] = there ? from.hit[entry] : -1;
    }
  }
  __device__ void write(const Entries<float, long long>& to) const {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (at(i) >= count) continue;
      const std::int64_t entry = at(i) * to.stride;
      to.values[entry] = value[i];
      to.entry_counts[entry] = token_count[i];
      to.born[entry] = born[i];
      to.hit[entry] = hit[i];
    }
  }

  __device__ void found(std::int32_t token, long long place) {
    const int same = first_where([&](int i) { return value[i] == token; });
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (at(i) != same) continue;
      token_count[i] += 1.0f;
      hit[i] = place;
    }
  }

  __device__ __forceinline__ void merge_all(const WarpEntries& other) {
    merge_some<0>(other);
    if (count > warp_size) merge_some<1>(other);
  }

  __device__ float total() const {
    static_assert(each == 2);
    float sum = __shfl_sync(full_warp, token_count[0], 0);
    for (int j = 1; j < min(count, warp_size); ++j) sum += __shfl_sync(full_warp, token_count[0], j);
    for (int j = warp_size; j < count; ++j) sum += __shfl_sync(full_warp, token_count[1], j - warp_size);
    return sum;
  }

 private:
  __device__ static int at(int i) { return i * warp_size + static_cast<int>(threadIdx.x) % warp_size; }

  // Returns the first entry for which holds(i) is true in its lane, or none.
  template <typename Holds>
  __device__ __forceinline__ static int first_where(const Holds& holds) {
    int first = none;
#pragma unroll
    for (int i = each - 1; i >= 0; --i) {
      const unsigned lanes = __ballot_sync(full_warp, holds(i));
      if (lanes != 0) first = i * warp_size + __ffs(static_cast<int>(lanes)) - 1;
    }
    return first;
  }

  // Takes the other slot's entries that are the I-th of their lanes.
  template <int I>
  __device__ __forceinline__ void merge_some(const WarpEntries& other) {
    static_assert(each == 2);
    for (unsigned left = __ballot_sync(full_warp, other.value[I] >= 0); left != 0; left &= left - 1) {
      const int lane = __ffs(static_cast<int>(left)) - 1;
      take(__shfl_sync(full_warp, other.value[I], lane), __shfl_sync(full_warp, other.token_count[I], lane),
           __shfl_sync(full_warp, other.born[I], lane), __shfl_sync(full_warp, other.hit[I], lane));
    }
  }

  __device__ __forceinline__ void take(std::int32_t token, float more, long long first, long long last) {
    const int same = first_where([&](int i) { return value[i] == token; });
    int place = none;
    if (same == none) {
      place = first_where([&](int i) { return at(i) < count && value[i] < 0; });
      if (place == none) {
        unsigned least = __float_as_uint(INFINITY);  // counts are not negative, so they are ordered like their bits
#pragma unroll
        for (int i = 0; i < each; ++i) least = min(least, __float_as_uint(token_count[i]));
        least = __reduce_min_sync(full_warp, least);
        if (__uint_as_float(least) > more) return;
        place = first_where([&](int i) { return at(i) < count && __float_as_uint(token_count[i]) == least; });
      }
    }
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (at(i) == same) token_count[i] += more;
      if (at(i) != place) continue;
      value[i] = token;
      token_count[i] = more;
      born[i] = first;
      hit[i] = last;
    }
  }
};

}  // namespace some::cuda
