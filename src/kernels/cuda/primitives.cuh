// Instructions that the GEMM and attention kernels are built from: asynchronous copies into shared memory (cp.async),
// loads of 8x8 matrices (ldmatrix), and the matrix multiply-accumulate of a warp (mma.sync).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/toolkit.cuh"

namespace some::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes from global to shared memory; if not `valid`, writes zeros and does not read the source.
__device__ __forceinline__ void cp_async(std::uint32_t target, const void* source, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&registers)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address));
}
__device__ __forceinline__ void ldmatrix_x4_transposed(std::uint32_t (&registers)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address));
}

// Computes d[16x8] += a[16x16] * b[16x8] in bf16. Lane l holds rows l/4 and l/4+8 of d, columns 2*(l%4) and 2*(l%4)+1.
__device__ __forceinline__ void multiply_add(float* d, const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Computes the same in fp16.
__device__ __forceinline__ void mma_fp16(float* d, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Transposes 4x4 registers within each group of four lanes: register p of lane q and register q of lane p change
// places. This converts between the accumulator layout, with two adjacent columns per lane, and eight adjacent columns
// per lane, so that global memory can be accessed 16 bytes at a time.
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

}  // namespace some::cuda
