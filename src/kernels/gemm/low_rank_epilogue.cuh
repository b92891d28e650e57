// Adds a low-rank correction, sum_r low[j, r] * factor[group][n, r], to a GEMM with an expert's matrix while its result
// is still in registers. With mma.sync, eight ranks at a time, it costs one word of the factor and one instruction for
// every 16 x 8 numbers, and no memory traffic for the result.
#pragma once

#include "kernels/cuda/primitives.cuh"
#include "kernels/gemm/grouped_gemm_kernel.cuh"

namespace some::cuda {

// Computes d[16x8] += a[16x8] * b[8x8]; the lanes hold d as in the larger MMA.
__device__ __forceinline__ void multiply_add_8(float* d, std::uint32_t a0, std::uint32_t a1, std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b));
}

// Returns two adjacent ranks of a row or column, of which only `left` exist; the others are zero.
__device__ __forceinline__ std::uint32_t rank_pair(const bf16* place, int stride, int left) {
  const unsigned short* const at = reinterpret_cast<const unsigned short*>(place);
  std::uint32_t pair = left > 0 ? __ldg(at) : 0u;
  if (left > 1) pair |= static_cast<std::uint32_t>(__ldg(at + stride)) << 16;
  return pair;
}

// In tiles of 256 columns, no other GEMM hides the latency of the epilogue. So its operands are ready before it begins:
// the factor is requested before the GEMM, and `low` is computed as a GEMM of its own.

// Load at the point where they are written, however late the value is used.
__device__ __forceinline__ std::uint32_t request_half(const bf16* place) {
  unsigned short value;
  asm volatile("ld.global.nc.u16 %0, [%1];\n" : "=h"(value) : "l"(place));
  return value;
}
__device__ __forceinline__ std::uint32_t request_word(const bf16* place) {
  std::uint32_t value;
  asm volatile("ld.global.nc.u32 %0, [%1];\n" : "=r"(value) : "l"(place));
  return value;
}

// Returns the column of the factor that a lane holds, for the given tile (kWoven: see kernels/hopper/tile_load.cuh).
template <bool kWoven>
__device__ __forceinline__ int factor_column(int tile, int lane) {
  const int own = lane >> 2;
  return kWoven ? (tile >> 2) * 32 + (own >> 1) * 8 + (tile & 3) * 2 + (own & 1) : tile * 8 + own;
}

// Loads what a lane needs of the factor for the 8 * kTiles columns starting at `column`, which must all exist.
template <bool kWoven, int kTiles>
__device__ __forceinline__ void request_factor(std::uint32_t (&pairs)[kTiles], const GemmArguments& arguments,
                                               int group, int column, int lane) {
  const int rank = arguments.rank, columns = arguments.columns, r = 2 * (lane & 3), left = rank - r;
  const int by_column = arguments.factor_transposed ? 1 : rank, by_rank = arguments.factor_transposed ? columns : 1;
  const bf16* const place = static_cast<const bf16*>(arguments.factor) +
                            static_cast<std::int64_t>(group) * columns * rank + column * by_column + r * by_rank;
#pragma unroll
  for (std::uint32_t& pair : pairs) pair = 0;
  if (left <= 0) return;
  if (by_rank == 1 && rank % 2 == 0 && reinterpret_cast<std::uintptr_t>(arguments.factor) % 4 == 0) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      pairs[tile] = request_word(place + factor_column<kWoven>(tile, lane) * by_column);
  } else {
    const int second = left > 1 ? by_rank : 0;
    const std::uint32_t keep = left > 1 ? 0xffffffffu : 0xffffu;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const bf16* const at = place + factor_column<kWoven>(tile, lane) * by_column;
      pairs[tile] = (request_half(at) | request_half(at + second) << 16) & keep;
    }
  }
}

// Packs `low` of 16 rows as the left operand of mma.sync, from the sums of a GEMM with eight columns: both have the
// same layout.
__device__ __forceinline__ void low_of(std::uint32_t (&rows)[2], const float (&sums)[4]) {
  rows[0] = pack(sums[0], sums[1]);
  rows[1] = pack(sums[2], sums[3]);
}

__device__ __forceinline__ void store_low(const std::uint32_t (&rows)[2], const GemmArguments& arguments, int row,
                                          int end, int lane) {
  const int r = 2 * (lane & 3), left = arguments.rank - r;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int j = row + (lane >> 2) + 8 * half;
    if (j >= end) continue;
    unsigned short* const low =
        static_cast<unsigned short*>(arguments.low) + static_cast<std::int64_t>(j) * arguments.rank + r;
    if (left > 0) low[0] = static_cast<unsigned short>(rows[half]);
    if (left > 1) low[1] = static_cast<unsigned short>(rows[half] >> 16);
  }
}

// Adds the correction from the loaded factor: kTiles tiles of the sums, starting at tile kFirst of `pairs`.
template <int kFirst, int kTiles, int kPairs>
__device__ __forceinline__ void add_requested(float* sums, const std::uint32_t (&rows)[2],
                                              const std::uint32_t (&pairs)[kPairs]) {
  static_assert(kFirst + kTiles <= kPairs);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) multiply_add_8(sums + 4 * tile, rows[0], rows[1], pairs[kFirst + tile]);
}

// Adds the correction to 16 rows starting at `row` and 8 * kTiles columns starting at `column`, which one warp holds in
// the accumulator layout (kWoven: see kernels/hopper/tile_load.cuh). All lanes must take part.
template <int kTiles, bool kWoven>
__device__ __forceinline__ void add_low_rank(float* sums, const GemmArguments& arguments, int group, int row,
                                             int row_end, int column, int lane) {
  const int rank = arguments.rank, columns = arguments.columns, own = lane >> 2;
  const bf16* const low = static_cast<const bf16*>(arguments.low);
  const bf16* const factor =
      static_cast<const bf16*>(arguments.factor) + static_cast<std::int64_t>(group) * columns * rank;
  const int by_column = arguments.factor_transposed ? 1 : rank, by_rank = arguments.factor_transposed ? columns : 1;
  for (int start = 0; start < rank; start += 8) {
    const int r = start + 2 * (lane & 3), left = rank - r;
    std::uint32_t rows[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int j = row + own + 8 * half;
      rows[half] = rank_pair(low + static_cast<std::int64_t>(j) * rank + r, 1, j < row_end ? left : 0);
    }
    constexpr int step = kTiles < 4 ? kTiles : 4;  // tiles whose loads are in flight at a time
#pragma unroll
    for (int first = 0; first < kTiles; first += step) {
      std::uint32_t pairs[step];
#pragma unroll
      for (int i = 0; i < step; ++i) {
        const int tile = first + i;
        const int n = column + factor_column<kWoven>(tile, lane);
        pairs[i] = rank_pair(factor + n * by_column + r * by_rank, by_rank, n < columns ? left : 0);
      }
#pragma unroll
      for (int i = 0; i < step; ++i) multiply_add_8(sums + 4 * (first + i), rows[0], rows[1], pairs[i]);
    }
  }
}

}  // namespace some::cuda
