// Top-k selection by one warp for one token, shared by kernels that keep the scores in different places.
#pragma once

#include "kernels/cuda/toolkit.cuh"

namespace some::cuda {

// Maps scores to integers of the same order. NaN counts as the lowest score, and the integer 0 is below all of them.
__device__ __forceinline__ unsigned rank_of(float score) {
  if (isnan(score)) score = -INFINITY;
  const unsigned bits = __float_as_uint(score + 0.0f);  // turns -0 into +0, since they must compare equal
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(full_warp, value, offset));
  return value;
}

// Returns the rank by which an expert is chosen. bias: one number per expert, or null.
__device__ __forceinline__ unsigned rank_of(const float* line, const float* bias, int expert) {
  return rank_of(bias != nullptr ? line[expert] + bias[expert] : line[expert]);
}

// Finds the k <= 32 best of `experts` <= 32*ITEMS scores with one warp, in k rounds of a warp-wide maximum with ties
// going to the lower expert; then computes the softmax of their scores. Lane i < k gets the i-th.
template <int ITEMS>
__device__ __forceinline__ int choose_row(const float* line, const float* bias, int experts, int k, float inverse,
                                          std::int32_t* indices, float* scores, float* gates) {
  const int lane = threadIdx.x % warp_size;
  unsigned ranks[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int expert = i * warp_size + lane;
    ranks[i] = expert < experts ? rank_of(line, bias, expert) : 0u;
  }
  int chosen = 0;
  for (int round = 0; round < k; ++round) {
    unsigned best = 0u;
    int where = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (ranks[i] > best) {
        best = ranks[i];
        where = i;
      }
    }
    const unsigned highest = __reduce_max_sync(full_warp, best);
    const unsigned mine =
        best == highest && highest != 0u ? static_cast<unsigned>(where * warp_size + lane) : 0xFFFFFFFFu;
    const unsigned winner = __reduce_min_sync(full_warp, mine);
    if (lane == round) chosen = static_cast<int>(winner);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (static_cast<unsigned>(i * warp_size + lane) == winner) ranks[i] = 0u;
    }
  }
  const bool mine = lane < k;
  const float score = mine ? line[chosen] : 0.0f;
  const float scaled = mine ? score * inverse : -INFINITY;
  const float highest = warp_max(scaled);
  const float weight = mine ? expf(scaled - highest) : 0.0f;
  const float sum = warp_sum(weight);
  if (mine) {
    indices[lane] = chosen;
    scores[lane] = score;
    gates[lane] = weight / sum;
  }
  return chosen;
}

}  // namespace some::cuda
