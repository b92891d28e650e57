// Attention for any head size up to 256, in bf16 or fp32, without tensor cores. One warp computes one row of one head:
// its lanes split the keys when computing scores, and the columns when computing sums. Used for verification, for
// generation, and for head sizes that the tensor cores cannot handle.
#pragma once

#include "kernels/attention/tiles.cuh"

namespace some::cuda {

inline constexpr int plain_head_limit = 256;
inline constexpr int plain_columns = plain_head_limit / 32;

// Adds the weighted rows `from` to `to` (exclusive) of `first` to `one`, and with kTwo those of `second` to `two`. The
// columns of the sums are spread over the lanes. `weigh` computes the two weights of a row; lane l computes those of
// row base + l.
template <typename T, bool kTwo, typename Weigh>
__device__ __forceinline__ void add_weighted_rows(const T* first, std::int64_t first_stride, const T* second,
                                                  std::int64_t second_stride, int from, int to, int head_size, int lane,
                                                  float (&one)[plain_columns], float (&two)[plain_columns],
                                                  Weigh&& weigh) {
  for (int base = from; base < to; base += 32) {
    const float2 mine = weigh(base + lane, base + lane < to);
    const int count = min(32, to - base);
    for (int i = 0; i < count; ++i) {
      const float weight = __shfl_sync(0xffffffffu, mine.x, i);
      const float other = kTwo ? __shfl_sync(0xffffffffu, mine.y, i) : 0.f;
#pragma unroll
      for (int n = 0; n < plain_columns; ++n) {
        const int column = lane + 32 * n;
        if (column < head_size) {
          one[n] = fmaf(weight, to_f32(first[(base + i) * first_stride + column]), one[n]);
          if (kTwo) two[n] = fmaf(other, to_f32(second[(base + i) * second_stride + column]), two[n]);
        }
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ float dot(const T* left, const T* right, int size) {
  float sum = 0.f;
  for (int c = 0; c < size; ++c) sum = fmaf(to_f32(left[c]), to_f32(right[c]), sum);
  return sum;
}

// Returns the sequence a token belongs to: the last sequence that does not start after the token.
__device__ __forceinline__ int sequence_of(const std::int32_t* offsets, int count, int token) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (offsets[middle] <= token) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Computes attention of one query over `count` keys: writes the result to `out` and returns the log-sum-exp of the
// scores.
template <typename T>
__device__ __forceinline__ float attend(const T* query, const T* keys, const T* values, std::int64_t stride, int count,
                                        int head_size, float scale, T* out, int lane) {
  float largest = -INFINITY, total = 0.f;
  float sums[plain_columns] = {}, unused[plain_columns];
  for (int base = 0; base < count; base += 32) {
    const int key = base + lane;
    const float score = key < count ? scale * dot(query, keys + key * stride, head_size) : -INFINITY;
    float high = fmaxf(largest, score);
    for (int step = 16; step > 0; step /= 2) high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, step));
    const float shrink = expf(largest - high), weight = expf(score - high);
    largest = high;
    float sum = weight;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    total = fmaf(total, shrink, sum);
#pragma unroll
    for (int n = 0; n < plain_columns; ++n) sums[n] *= shrink;
    add_weighted_rows<T, false>(values, stride, static_cast<const T*>(nullptr), 0, base, min(base + 32, count),
                                head_size, lane, sums, unused, [&](int, bool) { return make_float2(weight, 0.f); });
  }
  const float inverse = 1.f / total;
#pragma unroll
  for (int n = 0; n < plain_columns; ++n) {
    const int column = lane + 32 * n;
    if (column < head_size) out[column] = from_f32<T>(sums[n] * inverse);
  }
  return largest + logf(total);
}

template <typename T>
__global__ void __launch_bounds__(128)
    plain_attention_forward_kernel(const AttentionArguments arguments, int sequences) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (item >= static_cast<std::int64_t>(arguments.tokens) * arguments.heads) return;
  const int token = static_cast<int>(item / arguments.heads), head = static_cast<int>(item % arguments.heads);
  const int sequence = sequence_of(arguments.offsets, sequences, token);
  const int begin = arguments.offsets[sequence], end = arguments.offsets[sequence + 1];
  const int width = arguments.heads * arguments.head_size, lane = threadIdx.x & 31;
  const std::int64_t stride = 3 * static_cast<std::int64_t>(width);
  const T* const base = static_cast<const T*>(arguments.qkv) + head * arguments.head_size;
  const T* const keys = base + begin * stride + width;
  const int count = arguments.causal ? token + 1 - begin : end - begin;
  T* const out =
      static_cast<T*>(arguments.result) + static_cast<std::int64_t>(token) * width + head * arguments.head_size;
  const float lse =
      attend(base + token * stride, keys, keys + width, stride, count, arguments.head_size, arguments.scale, out, lane);
  if (lane == 0) arguments.lse[static_cast<std::int64_t>(head) * arguments.tokens + token] = lse;
}

// Computes dq of a token (as a query), and its dk and dv (as a key); one warp per token and head.
template <typename T>
__global__ void __launch_bounds__(128)
    plain_attention_backward_kernel(const AttentionArguments arguments, int sequences) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (item >= static_cast<std::int64_t>(arguments.tokens) * arguments.heads) return;
  const int token = static_cast<int>(item / arguments.heads), head = static_cast<int>(item % arguments.heads);
  const int sequence = sequence_of(arguments.offsets, sequences, token);
  const int begin = arguments.offsets[sequence], end = arguments.offsets[sequence + 1];
  const int width = arguments.heads * arguments.head_size, size = arguments.head_size, lane = threadIdx.x & 31;
  const std::int64_t stride = 3 * static_cast<std::int64_t>(width);
  const T* const queries = static_cast<const T*>(arguments.qkv) + head * size;
  const T* const keys = queries + width;
  const T* const values = keys + width;
  const T* const upstream = static_cast<const T*>(arguments.dout) + head * size;
  const float* const lse = arguments.lse + static_cast<std::int64_t>(head) * arguments.tokens;
  const float* const delta = arguments.delta + static_cast<std::int64_t>(head) * arguments.tokens;
  T* const result = static_cast<T*>(arguments.result) + token * stride + head * size;

  const auto weight_of = [&](int query, int key) {
    return expf(arguments.scale * dot(queries + query * stride, keys + key * stride, size) - lse[query]);
  };
  const auto slope_of = [&](int query, int key, float weight) {
    return weight *
           (dot(upstream + static_cast<std::int64_t>(query) * width, values + key * stride, size) - delta[query]);
  };
  const auto store = [&](const float(&sums)[plain_columns], float factor, int part) {
#pragma unroll
    for (int n = 0; n < plain_columns; ++n) {
      const int column = lane + 32 * n;
      if (column < size) result[part * width + column] = from_f32<T>(factor * sums[n]);
    }
  };

  float dq[plain_columns] = {}, unused[plain_columns];
  add_weighted_rows<T, false>(keys, stride, static_cast<const T*>(nullptr), 0, begin,
                              arguments.causal ? token + 1 : end, size, lane, dq, unused, [&](int key, bool valid) {
                                return make_float2(valid ? slope_of(token, key, weight_of(token, key)) : 0.f, 0.f);
                              });
  store(dq, arguments.scale, 0);

  float dk[plain_columns] = {}, dv[plain_columns] = {};
  add_weighted_rows<T, true>(queries, stride, upstream, width, arguments.causal ? token : begin, end, size, lane, dk,
                             dv, [&](int query, bool valid) {
                               if (!valid) return make_float2(0.f, 0.f);
                               const float weight = weight_of(query, token);
                               return make_float2(slope_of(query, token, weight), weight);
                             });
  store(dk, arguments.scale, 1);
  store(dv, 1.f, 2);
}

}  // namespace some::cuda
