// Epilogue of 128 x 256 tiles that are only stored. Each of the two warpgroups has 64 rows and no other tile to
// multiply in the meantime, so the stores are postponed until the next tile's first MMAs are in flight.
#pragma once

#include "kernels/gemm/grouped_gemm_kernel.cuh"

namespace some::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Stores one warp's part of such a tile, 16 rows. A part is 32 columns of either this lane's first row or the row eight
// below it. kWoven: see kernels/hopper/tile_load.cuh; otherwise the four lanes of a row first exchange their values, so
// that each has eight adjacent columns.
template <bool kWoven>
struct TilePart {
  static constexpr int parts = 16;
  bf16* place;  // address of this lane's first eight columns
  int left;     // rows of the group from this lane's first one on

  // row, column: the first of this warp
  __device__ __forceinline__ TilePart(const GemmArguments& arguments, int row, int end, int column, int lane)
      : place(static_cast<bf16*>(arguments.result) + static_cast<std::int64_t>(row + (lane >> 2)) * arguments.columns +
              column + (lane & 3) * 8),
        left(end - row - (lane >> 2)) {}

  static __device__ __forceinline__ std::uint32_t word(const float (&sums)[2][64], int part, int i) {
    const int at = 16 * (part >> 1 & 3) + 2 * (part & 1) + 4 * i;
    return pack(sums[part >> 3][at], sums[part >> 3][at + 1]);
  }
  __device__ __forceinline__ void store(const GemmArguments& arguments, int part, std::uint32_t (&words)[4],
                                        int lane) const {
    if constexpr (!kWoven) transpose_quad(words, lane);
    if (8 * (part & 1) >= left) return;
    *reinterpret_cast<uint4*>(place + (part >> 1) * 32 +
                              (part & 1) * 8 * static_cast<std::int64_t>(arguments.columns)) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
  __device__ __forceinline__ void store(const GemmArguments& arguments, const float (&sums)[2][64], int lane) const {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = word(sums, part, i);
      store(arguments, part, words, lane);
    }
  }
};

// A warp's part of a tile whose stores are postponed.
template <bool kWoven>
struct DeferredTile {
  std::uint32_t words[TilePart<kWoven>::parts][4];
  TilePart<kWoven> share;
  bool waiting = false;

  __device__ __forceinline__ explicit DeferredTile(const GemmArguments& arguments) : share(arguments, 0, 0, 0, 0) {}
  __device__ __forceinline__ void hold(const TilePart<kWoven>& where, const float (&sums)[2][64]) {
    share = where;
    waiting = true;
#pragma unroll
    for (int part = 0; part < share.parts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[part][i] = share.word(sums, part, i);
    }
  }
  __device__ __forceinline__ void store(const GemmArguments& arguments, int lane) {
    if (!waiting) return;
    waiting = false;
#pragma unroll
    for (int part = 0; part < share.parts; ++part) share.store(arguments, part, words[part], lane);
  }
};

#endif

}  // namespace some::cuda
