// The instructions the matrix and attention kernels are made of: asynchronous copies into shared memory, 8x8 matrix
// loads, the warp's matrix product, and the arithmetic around them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "base/rooms.h"

namespace some::ops::cuda {

using bf16 = __nv_bfloat16;

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes from global to shared memory; zeros when not `valid` (the source is not read then).
__device__ __forceinline__ void copy_async(std::uint32_t target, const void* source, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(std::uint32_t (&registers)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&registers)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address));
}

// d[16x8] += a[16x16] * b[16x8]. Lane l holds d at rows l/4 and l/4+8, columns 2*(l%4) and the next.
__device__ __forceinline__ void multiply_add(float* d, const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of fp16 numbers.
__device__ __forceinline__ void multiply_add_half(float* d, const std::uint32_t (&a)[4], std::uint32_t b0,
                                                  std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ __forceinline__ float low_half(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_half(std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ float as_float(float value) { return value; }
__device__ __forceinline__ float as_float(bf16 value) { return __bfloat162float(value); }
template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
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

// For results kept in fp32.
__device__ __forceinline__ Gelu gelu_exact(float x) {
  const float cdf = 0.5f * erfcf(-0.70710678118654752f * x);
  return {x * cdf, cdf + x * 0.39894228040143268f * expf(-0.5f * x * x)};
}

// For results rounded to bf16: Phi(x) = 1 / (1 + exp(-x * P(x^2))), P of degree 2 fitted so that the GELU is within
// 3e-5 of the exact one everywhere and its derivative within 2e-4; beside a product on the tensor cores a finish costs
// what it has in instructions. kCount numbers go through it side by side: each is one chain of dependent steps, and a
// warp that waits for every step would spend most of its time waiting.
template <int kCount>
__device__ __forceinline__ void gelu_short(const float (&x)[kCount], float (&value)[kCount],
                                           float (&derivative)[kCount]) {
  constexpr float log2e = 1.4426950408889634f;
  constexpr float c0 = 1.5950157526745559f, c1 = 0.07401130570110098f, c2 = -0.0007030356868359643f;
  float square[kCount], cdf[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) square[i] = fminf(x[i] * x[i], 25.f);  // the fit turns round far outside
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
__device__ __forceinline__ Gelu gelu_for(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return gelu_exact(x);
  } else {
    return gelu_short(x);
  }
}

// Within each group of four lanes: lane q's register p becomes what was lane p's register q (its own inverse). Turns
// the product's layout, two columns a lane, into eight neighbouring columns a lane, so that memory is touched 16 bytes
// at a time.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&r)[4], int lane) {
  const bool odd = (lane & 1) != 0, upper = (lane & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? r[i] : r[i + 1], 1);
    r[i] = odd ? got : r[i];
    r[i + 1] = odd ? r[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? r[i] : r[i + 2], 2);
    r[i] = upper ? got : r[i];
    r[i + 2] = upper ? r[i + 2] : got;
  }
}

}  // namespace some::ops::cuda
