// Shared by all CUDA kernels: number types and their conversions, typed pointers, dispatch by type, grids, 16-byte
// accesses, sums over a warp or block in a fixed order, and one GELU for each precision. Included only by .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/error.h"
#include "kernels/cuda/matmul.h"
#include "runtime/context.h"

namespace some::cuda {

using bf16 = __nv_bfloat16;

inline constexpr int warp_size = 32;
inline constexpr unsigned full_warp = 0xFFFFFFFFu;

// Typed pointers into tensors; Tensor::data checks the element type.
inline float* floats(const Tensor& tensor) { return tensor.data<float>(); }
inline std::int32_t* ints(const Tensor& tensor) { return tensor.data<std::int32_t>(); }
inline long long* longs(const Tensor& tensor) { return reinterpret_cast<long long*>(tensor.data<std::int64_t>()); }
template <typename T>
T* elements_of(const Tensor& tensor) {
  if constexpr (std::is_same_v<T, bf16>) {
    return reinterpret_cast<bf16*>(tensor.data<BFloat16>());
  } else {
    return tensor.data<T>();
  }
}

// Calls function(float{}) or function(bf16{}), depending on `type`.
template <typename Function>
void with_real_type(DType type, const char* what, Function&& function) {
  switch (type) {
    case DType::f32: return function(float{});
    case DType::bf16: return function(bf16{});
    default:
      failed(Code::type_unsupported, "{} does not take {} on the GPU: f32 or bf16 is needed", what, name_of(type));
  }
}

// Returns the number of blocks needed for `items`.
inline unsigned grid_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

inline bool aligned16(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }
template <typename... Pointers>
bool all_aligned16(const Pointers*... pointers) {
  return (aligned16(pointers) && ...);
}

__device__ __forceinline__ float to_f32(float value) { return value; }
__device__ __forceinline__ float to_f32(bf16 value) { return __bfloat162float(value); }
template <typename T>
__device__ __forceinline__ T from_f32(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return __float2bfloat16_rn(value);
  }
}

// Packs two numbers as bf16 into one word, the first in the low half.
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ __forceinline__ float low_half(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_half(std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// Number of elements of type T in 16 bytes.
template <typename T>
inline constexpr int vector_width = static_cast<int>(16 / sizeof(T));

// Loads WIDTH consecutive elements as floats. WIDTH is 1, 4 (16 bytes of f32, 8 of bf16) or 8 (32 or 16 bytes); the
// address must be aligned to the size of one access.
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
__device__ __forceinline__ void load_elements(const bf16* source, float (&values)[WIDTH]) {
  if constexpr (WIDTH == 8) {
    const uint4 raw = *reinterpret_cast<const uint4*>(source);
    const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = low_half(words[i]);
      values[2 * i + 1] = high_half(words[i]);
    }
  } else if constexpr (WIDTH == 4) {
    const uint2 raw = *reinterpret_cast<const uint2*>(source);
    values[0] = low_half(raw.x);
    values[1] = high_half(raw.x);
    values[2] = low_half(raw.y);
    values[3] = high_half(raw.y);
  } else {
    static_assert(WIDTH == 1);
    values[0] = __bfloat162float(*source);
  }
}

// Unpacks the elements of a 16-byte word that has already been loaded.
template <typename T>
__device__ __forceinline__ void unpack16(const uint4& word, float (&values)[vector_width<T>]) {
  const std::uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      values[i] = __uint_as_float(words[i]);
    } else {
      values[2 * i] = low_half(words[i]);
      values[2 * i + 1] = high_half(words[i]);
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

template <int WIDTH>
__device__ __forceinline__ void store_elements(bf16* target, const float (&values)[WIDTH]) {
  if constexpr (WIDTH == 8) {
    *reinterpret_cast<uint4*>(target) = make_uint4(pack(values[0], values[1]), pack(values[2], values[3]),
                                                   pack(values[4], values[5]), pack(values[6], values[7]));
  } else if constexpr (WIDTH == 4) {
    *reinterpret_cast<uint2*>(target) = make_uint2(pack(values[0], values[1]), pack(values[2], values[3]));
  } else {
    static_assert(WIDTH == 1);
    *target = __float2bfloat16_rn(values[0]);
  }
}

// Returns the sum over the warp. The butterfly adds the same pairs in every lane, so all lanes get the same bits.
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

// Returns the sum over a block of whole warps (at most 1024 threads), with the same bits in every thread. `shared` has
// room for 32 values and may be reused after the next barrier.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* shared) {
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size, warps = blockDim.x / warp_size;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : T{0});
}

__device__ __forceinline__ float exp2_fast(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(value));
  return result;
}

__device__ __forceinline__ float reciprocal_fast(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(value));
  return result;
}

// The exact (erf) GELU, x * Phi(x), and its derivative Phi(x) + x * phi(x).
struct Gelu {
  float value;
  float derivative;
};

// Returns the exact GELU, for results that are kept in fp32.
__device__ __forceinline__ Gelu gelu_exact(float x) {
  const float cdf = 0.5f * erfcf(-0.70710678118654752f * x);
  return {x * cdf, cdf + x * 0.39894228040143268f * expf(-0.5f * x * x)};
}

// Computes an approximate GELU, for results that are rounded to bf16: Phi(x) = 1 / (1 + exp(-x * P(x^2))). P has degree
// 2 and is fitted so that the GELU is within 3e-5 of the exact one everywhere and its derivative within 2e-4. The
// degree is low because an epilogue that runs concurrently with a GEMM on the tensor cores costs its instruction count.
// kCount numbers are processed together, because each is a chain of dependent steps and a warp with only one chain
// would spend most of its time waiting.
template <int kCount>
__device__ __forceinline__ void gelu_short(const float (&x)[kCount], float (&value)[kCount],
                                           float (&derivative)[kCount]) {
  constexpr float log2e = 1.4426950408889634f;
  constexpr float c0 = 1.5950157526745559f, c1 = 0.07401130570110098f, c2 = -0.0007030356868359643f;
  float square[kCount], cdf[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) square[i] = fminf(x[i] * x[i], 25.f);  // the polynomial decreases beyond 25
#pragma unroll
  for (int i = 0; i < kCount; ++i) cdf[i] = fmaf(-log2e * c2, square[i], -log2e * c1);
#pragma unroll
  for (int i = 0; i < kCount; ++i) cdf[i] = fmaf(cdf[i], square[i], -log2e * c0);
#pragma unroll
  for (int i = 0; i < kCount; ++i) cdf[i] = exp2_fast(x[i] * cdf[i]);
#pragma unroll
  for (int i = 0; i < kCount; ++i) cdf[i] = reciprocal_fast(1.f + cdf[i]);
#pragma unroll
  for (int i = 0; i < kCount; ++i) value[i] = x[i] * cdf[i];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {  // Phi + x * Phi * (1 - Phi) * (x * P)'
    const float slope = fmaf(fmaf(5.f * c2, square[i], 3.f * c1), square[i], c0);
    derivative[i] = fmaf(fmaf(-value[i], cdf[i], value[i]), slope, cdf[i]);
  }
}

__device__ __forceinline__ Gelu gelu_short(float x) {
  const float at[1] = {x};
  float value[1], derivative[1];
  gelu_short(at, value, derivative);
  return {value[0], derivative[0]};
}

template <typename T>
__device__ __forceinline__ Gelu gelu_of(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return gelu_exact(x);
  } else {
    return gelu_short(x);
  }
}

}  // namespace some::cuda
