// Device functions shared by the kernels of a decoding step (steps.h).
#pragma once

#include "inference/cuda/lanes.cuh"
#include "inference/cuda/steps.h"

namespace some::decoding {

SOME_DEVICE float low_half(std::uint32_t pair) { return float_of(pair << 16); }
SOME_DEVICE float high_half(std::uint32_t pair) { return float_of(pair & 0xffff0000u); }
SOME_DEVICE float rounded(float value) { return low_half(pack(value, 0.0f)); }
SOME_DEVICE float larger(float a, float b) { return a > b ? a : b; }

SOME_DEVICE float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = add(value, shuffle_xor(value, offset));
  return value;
}

// As gelu_short in kernels/cuda/toolkit.cuh, for results that are rounded to bf16.
SOME_DEVICE float gelu(float x) {
  constexpr float log2e = 1.4426950408889634f;
  constexpr float c0 = 1.5950157526745559f, c1 = 0.07401130570110098f, c2 = -0.0007030356868359643f;
  float square = times(x, x);
  square = square < 25.0f ? square : 25.0f;
  float cdf = times_add(-log2e * c2, square, -log2e * c1);
  cdf = times_add(cdf, square, -log2e * c0);
  return times(x, reciprocal_fast(add(1.0f, exp2_fast(times(x, cdf)))));
}

// Returns the place of 16-byte chunk `chunk` of a row in shared memory. Two adjacent rows lie in different halves of
// the banks, so that 8 lanes reading 4 chunks of each have no bank conflicts. `chunks` per row: a multiple of 8.
SOME_DEVICE int chunk_place(int row, int chunk, int chunks) { return row * chunks + (chunk ^ ((row & 1) << 2)); }

// Normalizes a row in place (spec 2); the lane holds columns (p * 32 + lane) * 4 + i.
template <int kParts>
SOME_DEVICE void norm_row(float (&values)[kParts][4], int parts, int width, const float* weight, const float* bias,
                          int lane) {
  float total = 0.0f;
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    if (p >= parts) break;
    total = add(total, add(add(values[p][0], values[p][1]), add(values[p][2], values[p][3])));
  }
  const float inverse = 1.0f / static_cast<float>(width), mean = times(warp_sum(total), inverse);
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    if (p >= parts) break;
    float off[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) off[i] = add(values[p][i], -mean);
    squares = add(squares, add(times_add(off[0], off[0], times(off[1], off[1])),
                               times_add(off[2], off[2], times(off[3], off[3]))));
  }
  const float scale = reciprocal_root(times_add(warp_sum(squares), inverse, 1e-5f));
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    if (p >= parts) break;
    const int column = (p * 32 + lane) * 4;
    const float4 w = *reinterpret_cast<const float4*>(weight + column);
    const float4 b = *reinterpret_cast<const float4*>(bias + column);
    values[p][0] = times_add(times(add(values[p][0], -mean), scale), w.x, b.x);
    values[p][1] = times_add(times(add(values[p][1], -mean), scale), w.y, b.y);
    values[p][2] = times_add(times(add(values[p][2], -mean), scale), w.z, b.z);
    values[p][3] = times_add(times(add(values[p][3], -mean), scale), w.w, b.w);
  }
}

// Adds the products of 32 columns: `low` and `high` are the lane's chunk of rows g and g + 8.
SOME_DEVICE void multiply_chunk(float (&c)[4], const uint4& low, const uint4& high, const uint4& weights) {
  multiply(c, low.x, high.x, low.y, high.y, weights.x, weights.y);
  multiply(c, low.z, high.z, low.w, high.w, weights.z, weights.w);
}

// Attention of one query over a block of positions. Lane 8s + c holds columns 8c .. 8c + 7 and processes positions 4i +
// s.
struct Attended {
  float largest, sum, values[8];
};

// keys: of position 0, columns 8c .. 8c + 7 of the head; values: offset of the values from there; stride: between
// positions; all in units of 16 bytes. near: true if they are in shared memory. `last` is the query's position, whose
// key and value are read from last_key and last_value. query: scaled by log2(e) / 8.
SOME_DEVICE Attended attend_block(const float (&query)[8], const uint4* keys, std::int64_t values, std::int64_t stride,
                                  bool near, int first, int last, const uint4* last_key, const uint4* last_value,
                                  int lane) {
  constexpr int steps = position_block / 4;
  const int sub = lane >> 3;
  uint4 key[steps], value[steps];
  if (near) {
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int position = first + 4 * i + sub;
      key[i] = value[i] = uint4{0, 0, 0, 0};
      if (position <= last) {
        key[i] = position < last ? keys[position * stride] : *last_key;
        value[i] = position < last ? keys[position * stride + values] : *last_value;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int position = first + 4 * i + sub;
      key[i] = uint4{0, 0, 0, 0};
      if (position < last)
        key[i] = load_written(keys + position * stride);
      else if (position == last)
        key[i] = *last_key;
    }
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int position = first + 4 * i + sub;
      value[i] = uint4{0, 0, 0, 0};
      if (position < last)
        value[i] = load_written(keys + position * stride + values);
      else if (position == last)
        value[i] = *last_value;
    }
  }
  float score[steps];
  float largest = -3e38f;
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    float s = times(query[0], low_half(key[i].x));
    s = times_add(query[1], high_half(key[i].x), s);
    s = times_add(query[2], low_half(key[i].y), s);
    s = times_add(query[3], high_half(key[i].y), s);
    s = times_add(query[4], low_half(key[i].z), s);
    s = times_add(query[5], high_half(key[i].z), s);
    s = times_add(query[6], low_half(key[i].w), s);
    s = times_add(query[7], high_half(key[i].w), s);
    s = add(s, shuffle_xor(s, 1));
    s = add(s, shuffle_xor(s, 2));
    s = add(s, shuffle_xor(s, 4));
    score[i] = first + 4 * i + sub <= last ? s : -3e38f;
    largest = larger(largest, score[i]);
  }
  largest = larger(largest, shuffle_xor(largest, 8));
  largest = larger(largest, shuffle_xor(largest, 16));
  Attended out{largest, 0.0f, {}};
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    const float weight = exp2_fast(add(score[i], -largest));
    out.sum = add(out.sum, weight);
    out.values[0] = times_add(weight, low_half(value[i].x), out.values[0]);
    out.values[1] = times_add(weight, high_half(value[i].x), out.values[1]);
    out.values[2] = times_add(weight, low_half(value[i].y), out.values[2]);
    out.values[3] = times_add(weight, high_half(value[i].y), out.values[3]);
    out.values[4] = times_add(weight, low_half(value[i].z), out.values[4]);
    out.values[5] = times_add(weight, high_half(value[i].z), out.values[5]);
    out.values[6] = times_add(weight, low_half(value[i].w), out.values[6]);
    out.values[7] = times_add(weight, high_half(value[i].w), out.values[7]);
  }
#pragma unroll
  for (int offset = 8; offset <= 16; offset *= 2) {
    out.sum = add(out.sum, shuffle_xor(out.sum, offset));
#pragma unroll
    for (int i = 0; i < 8; ++i) out.values[i] = add(out.values[i], shuffle_xor(out.values[i], offset));
  }
  return out;
}

// Returns the factors of two partial attention results when they are merged.
struct Merge {
  float largest, first, second;
};
SOME_DEVICE Merge merge(float largest, float other) {
  const float both = larger(largest, other);
  return {both, exp2_fast(add(largest, -both)), exp2_fast(add(other, -both))};
}
SOME_DEVICE float merged(const Merge& by, float first, float second) {
  return times_add(first, by.first, times(second, by.second));
}

// Adds the state j tokens before row `place` of the kept states, times its convolution weight.
SOME_DEVICE void convolve(float (&sum)[4], const bf16* states, const float* taps, std::int64_t place, int j, int column,
                          int width) {
  const uint2 before = load_written(reinterpret_cast<const uint2*>(states + (place - j) * width + column));
  const float4 tap = *reinterpret_cast<const float4*>(taps + (j - 1) * width + column);
  sum[0] = times_add(tap.x, low_half(before.x), sum[0]);
  sum[1] = times_add(tap.y, high_half(before.x), sum[1]);
  sum[2] = times_add(tap.z, low_half(before.y), sum[2]);
  sum[3] = times_add(tap.w, high_half(before.y), sum[3]);
}

// Maps floats to integers with the same order.
SOME_DEVICE std::uint32_t ordered(float value) {
  const std::uint32_t bits = bits_of(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
SOME_DEVICE float unordered(std::uint32_t order) {
  return float_of((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

// Selects a row's top-k experts with one warp, best first, ties to the lower index, and computes their gates. raw:
// [query_size], keys: rows of key_stride floats. scores: [max_experts] in this warp's shared memory.
SOME_DEVICE void route_row(const Routes& routes, const float* raw, const float* keys, int key_stride, float* scores,
                           std::int32_t* chosen, float* gates, int lane) {
  const float first = raw[lane], second = raw[lane + 32];
  const float length = square_root(warp_sum(times_add(first, first, times(second, second))));
  const float inverse = 1.0f / larger(length, 1e-12f);
  std::uint32_t place = 0;
  if (lane < routes.experts) {
    float sums[4] = {};
#pragma unroll 4
    for (int j = 0; j < query_size; j += 4) {
      const float4 q = *reinterpret_cast<const float4*>(raw + j);
      const float4 key = *reinterpret_cast<const float4*>(keys + lane * key_stride + j);
      sums[0] = times_add(q.x, key.x, sums[0]);
      sums[1] = times_add(q.y, key.y, sums[1]);
      sums[2] = times_add(q.z, key.z, sums[2]);
      sums[3] = times_add(q.w, key.w, sums[3]);
    }
    const float score = times(add(add(sums[0], sums[1]), add(sums[2], sums[3])), inverse);
    scores[lane] = score;
    const float rank = add(routes.choice_bias != nullptr ? add(score, routes.choice_bias[lane]) : score, 0.0f);
    place = ordered(rank);
  }
  warp_sync();
  float by = routes.inverse_temperature;
  if (routes.log_temperature != nullptr) by = exp2_fast(times(-1.4426950408889634f, *routes.log_temperature));
  by = times(by, 1.4426950408889634f);
  float found[max_choices], largest = -3e38f, sum = 0.0f;
  int expert = 0;
#pragma unroll
  for (int i = 0; i < max_choices; ++i) {
    if (i >= routes.choices) break;
    const int one = first_lane(place == warp_largest(place));
    if (one == lane) place = 0;
    found[i] = times(scores[one], by);
    largest = larger(largest, found[i]);
    if (i == lane) expert = one;
  }
  float own = 0.0f;
#pragma unroll
  for (int i = 0; i < max_choices; ++i) {
    if (i >= routes.choices) break;
    const float weight = exp2_fast(add(found[i], -largest));
    sum = add(sum, weight);
    if (i == lane) own = weight;
  }
  if (lane < routes.choices) {
    chosen[lane] = expert;
    gates[lane] = own / sum;
  }
}

SOME_DEVICE void report_route(const RouteReport& to, int row, int choice, std::int32_t expert, float gate) {
  if (to.experts == nullptr) return;
  row += to.first_row;
  const std::int64_t at = ((to.rings[row] * to.rows + row) * to.layers + to.layer) * to.choices + choice;
  to.experts[at] = expert;
  to.gates[at] = gate;
}

// Returns the modulated hidden unit.
SOME_DEVICE float modulated(const Modulations& by, float hidden, float modulation) {
  return by.additive ? gelu(add(hidden, modulation)) : times(gelu(hidden), add(1.0f, modulation));
}

}  // namespace some::decoding
