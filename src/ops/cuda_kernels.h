// Small pieces that the CUDA kernels share: 16-byte accesses, sums over a warp or block in a fixed order, the exact
// GELU. Included by .cu files only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "base/context.h"
#include "base/error.h"
#include "base/rooms.h"
#include "ops/cuda_state.h"

namespace some::ops::cuda {

inline constexpr int warp_size = 32;
inline constexpr unsigned full_warp = 0xFFFFFFFFu;

template <typename T>
struct ElementOf;
template <>
struct ElementOf<float> {
  static constexpr DType type = DType::f32;
};
template <>
struct ElementOf<__nv_bfloat16> {
  static constexpr DType type = DType::bf16;
};

// Typed pointers into tensors; the tensor's own check of the element type applies.
inline float* floats(const Tensor& tensor) { return tensor.data<float>(); }
inline std::int32_t* ints(const Tensor& tensor) { return tensor.data<std::int32_t>(); }
inline long long* longs(const Tensor& tensor) { return reinterpret_cast<long long*>(tensor.data<std::int64_t>()); }
template <typename T>
T* elements_of(const Tensor& tensor) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return reinterpret_cast<__nv_bfloat16*>(tensor.data<BFloat16>());
  } else {
    return tensor.data<T>();
  }
}

// Calls function(float{}) or function(__nv_bfloat16{}).
template <typename Function>
void with_real_type(DType type, const char* what, Function&& function) {
  switch (type) {
    case DType::f32: return function(float{});
    case DType::bf16: return function(__nv_bfloat16{});
    default: failed("{} does not take {} on the GPU: f32 or bf16 is needed", what, name_of(type));
  }
}

inline int grid_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<int>((items + per_block - 1) / per_block);
}

inline bool aligned16(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }
template <typename... Pointers>
bool all_aligned16(const Pointers*... pointers) {
  return (aligned16(pointers) && ...);
}

__device__ __forceinline__ float to_f32(float value) { return value; }
__device__ __forceinline__ float to_f32(__nv_bfloat16 value) { return __bfloat162float(value); }
template <typename T>
__device__ __forceinline__ T from_f32(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return __float2bfloat16_rn(value);
  }
}

// Elements of T in 16 bytes.
template <typename T>
inline constexpr int vector_width = static_cast<int>(16 / sizeof(T));

// `WIDTH` consecutive elements as floats; WIDTH 4 (16 bytes of f32, 8 of bf16), 8 (32 or 16 bytes) or 1. The address is
// aligned to the size of the access.
template <int WIDTH>
__device__ __forceinline__ void load_elements(const float* source, float (&values)[WIDTH]) {
  if constexpr (WIDTH % 4 == 0) {
#pragma unroll
    for (int part = 0; part < WIDTH / 4; ++part) {
      const float4 four = reinterpret_cast<const float4*>(source)[part];
      values[4 * part] = four.x;
      values[4 * part + 1] = four.y;
      values[4 * part + 2] = four.z;
      values[4 * part + 3] = four.w;
    }
  } else {
    static_assert(WIDTH == 1);
    values[0] = *source;
  }
}

template <int WIDTH>
__device__ __forceinline__ void load_elements(const __nv_bfloat16* source, float (&values)[WIDTH]) {
  if constexpr (WIDTH == 8) {
    const uint4 raw = *reinterpret_cast<const uint4*>(source);
    const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
    }
  } else if constexpr (WIDTH == 4) {
    const uint2 raw = *reinterpret_cast<const uint2*>(source);
    values[0] = __uint_as_float(raw.x << 16);
    values[1] = __uint_as_float(raw.x & 0xFFFF0000u);
    values[2] = __uint_as_float(raw.y << 16);
    values[3] = __uint_as_float(raw.y & 0xFFFF0000u);
  } else {
    static_assert(WIDTH == 1);
    values[0] = __bfloat162float(*source);
  }
}

// The elements of a 16-byte word that was loaded before.
template <typename T>
__device__ __forceinline__ void unpack16(const uint4& word, float (&values)[vector_width<T>]) {
  const std::uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      values[i] = __uint_as_float(words[i]);
    } else {
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
    }
  }
}

template <int WIDTH>
__device__ __forceinline__ void store_elements(float* target, const float (&values)[WIDTH]) {
  if constexpr (WIDTH % 4 == 0) {
#pragma unroll
    for (int part = 0; part < WIDTH / 4; ++part)
      reinterpret_cast<float4*>(target)[part] =
          make_float4(values[4 * part], values[4 * part + 1], values[4 * part + 2], values[4 * part + 3]);
  } else {
    static_assert(WIDTH == 1);
    *target = values[0];
  }
}

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

template <int WIDTH>
__device__ __forceinline__ void store_elements(__nv_bfloat16* target, const float (&values)[WIDTH]) {
  if constexpr (WIDTH == 8) {
    *reinterpret_cast<uint4*>(target) = make_uint4(pack_bf16(values[0], values[1]), pack_bf16(values[2], values[3]),
                                                   pack_bf16(values[4], values[5]), pack_bf16(values[6], values[7]));
  } else if constexpr (WIDTH == 4) {
    *reinterpret_cast<uint2*>(target) = make_uint2(pack_bf16(values[0], values[1]), pack_bf16(values[2], values[3]));
  } else {
    static_assert(WIDTH == 1);
    *target = __float2bfloat16_rn(values[0]);
  }
}

// The butterfly adds the same pairs in every lane, so all lanes hold the same bits.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(full_warp, value, offset);
  return value;
}
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(full_warp, value, offset);
  return value;
}

// Sum over a block of whole warps (at most 1024 threads), the same in every thread. `shared` holds 32 values and may be
// reused after the next barrier.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* shared) {
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size, warps = blockDim.x / warp_size;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : T{0});
}

// erf by Abramowitz and Stegun 7.1.26: absolute error below 2e-7, a twentieth of the spacing of bf16 numbers near 1e-3,
// for less than half the instructions of erff. For results that are rounded to bf16.
__device__ __forceinline__ float erf_for_bf16(float x, float exp_minus_x_squared) {
  const float t = __fdividef(1.0f, fmaf(0.3275911f, fabsf(x), 1.0f));
  float p = fmaf(1.061405429f, t, -1.453152027f);
  p = fmaf(p, t, 1.421413741f);
  p = fmaf(p, t, -0.284496736f);
  p = fmaf(p, t, 0.254829592f);
  return copysignf(1.0f - p * t * exp_minus_x_squared, x);
}

// The exact GELU, x * Phi(x), and its derivative Phi(x) + x * phi(x); T is the type the result is stored in.
template <typename T>
__device__ __forceinline__ float gelu(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  } else {
    return 0.5f * x * (1.0f + erf_for_bf16(x * 0.70710678f, __expf(-0.5f * x * x)));
  }
}

template <typename T>
__device__ __forceinline__ float gelu_slope(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
  } else {
    const float bell = __expf(-0.5f * x * x);
    return fmaf(x * 0.39894228f, bell, 0.5f * (1.0f + erf_for_bf16(x * 0.70710678f, bell)));
  }
}

}  // namespace some::ops::cuda
