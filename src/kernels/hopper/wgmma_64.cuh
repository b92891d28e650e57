// The warpgroup's MMA of 64 rows and 64 columns (sm_90a only).
#pragma once

#include "kernels/hopper/instructions.cuh"

namespace some::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define SOME_SUMS_32(d)                                                                                       \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
      "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
      "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define SOME_PLACES_32                                                                                              \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31}"

// Accumulator of a tile: number 4n + 2h + c of a thread is row 16*warp + 8h + lane/4, column 8n + 2*(lane%4) + c.
using Sums = float[32];

// Computes d[64x64] (+)= a[64x16] * b[64x16]^T of bf16, both in shared memory; d is overwritten if `add` is 0.
__device__ __forceinline__ void wgmma_64x64(Sums& d, std::uint64_t a, std::uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SOME_PLACES_32 ", %32, %33, p, 1, 1, 0, 0;\n}\n"
      : SOME_SUMS_32(d)
      : "l"(a), "l"(b), "r"(add));
}
// Computes the same in fp16.
__device__ __forceinline__ void wgmma_64x64_fp16(Sums& d, std::uint64_t a, std::uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " SOME_PLACES_32 ", %32, %33, p, 1, 1, 0, 0;\n}\n"
      : SOME_SUMS_32(d)
      : "l"(a), "l"(b), "r"(add));
}
// Computes d += a * b^T of bf16 with a in registers. Transposed: b[16x64], with the 16 rows of depth outermost.
template <int kTransposedB>
__device__ __forceinline__ void wgmma_64x64(Sums& d, const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SOME_PLACES_32
      ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}\n"
      : SOME_SUMS_32(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(kTransposedB));
}
#undef SOME_SUMS_32
#undef SOME_PLACES_32

#endif

}  // namespace some::cuda
