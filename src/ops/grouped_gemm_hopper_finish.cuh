// What a Hopper warpgroup does with a finished tile. Each warp passes its rows through a few KiB of shared memory of
// its own, so that global memory is read and written in whole 128-byte lines.
#pragma once

#include "ops/cuda_hopper.cuh"
#include "ops/grouped_gemm_kernel.cuh"

namespace some::cuda {

// 16 rows of 64 columns; 16-byte pieces permuted by row against bank conflicts.
inline constexpr int staging_bytes = 16 * 128;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct WarpRows {
  int first, end;       // rows of the result; those from `end` on belong to another group
  int column, columns;  // this chunk's first column, and how many there are in all
  int lane;

  // One pass covers four rows, eight lanes each. Returns whether this lane's piece exists and where it is.
  __device__ __forceinline__ bool piece(int pass, std::int64_t& at) const {
    const int row = first + pass * 4 + (lane >> 3), c = column + (lane & 7) * 8;
    at = static_cast<std::int64_t>(row) * columns + c;
    return row < end && c < columns;
  }
  __device__ __forceinline__ std::uint32_t piece_place(std::uint32_t staging, int pass) const {
    const int row = pass * 4 + (lane >> 3);
    return staging + row * 128 + (((lane & 7) ^ (row & 7)) << 4);
  }
  // Where this lane's row of the matrices of column tiles 2*pair and 2*pair+1 lies.
  __device__ __forceinline__ std::uint32_t matrix_row(std::uint32_t staging, int pair) const {
    const int matrix = lane >> 3, row = (matrix & 1) * 8 + (lane & 7), tile = 2 * pair + (matrix >> 1);
    return staging + row * 128 + ((tile ^ (row & 7)) << 4);
  }
};

__device__ __forceinline__ void store_rows(const WarpRows& rows, std::uint32_t staging, void* target) {
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    std::int64_t at;
    if (rows.piece(pass, at)) {
      *reinterpret_cast<uint4*>(static_cast<bf16*>(target) + at) = load_shared(rows.piece_place(staging, pass));
    }
  }
}

__device__ __forceinline__ void load_rows(const WarpRows& rows, const void* source, uint4 (&pieces)[4]) {
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    std::int64_t at;
    pieces[pass] = make_uint4(0, 0, 0, 0);
    if (rows.piece(pass, at)) pieces[pass] = *reinterpret_cast<const uint4*>(static_cast<const bf16*>(source) + at);
  }
}

// Finishes 16 rows and 128 columns in the product's layout: sums[4*tile + ..]. `staging` is this warp's, two parts.
template <Finish kFinish>
__device__ __forceinline__ void finish_warp(float (&sums)[64], const ProductArguments& arguments, int row, int row_end,
                                            int column, int slot, std::uint32_t staging, int lane) {
  constexpr int chunks = 2;
  const auto rows_of = [&](int chunk) { return WarpRows{row, row_end, column + chunk * 64, arguments.columns, lane}; };
  if constexpr (kFinish == Finish::store || kFinish == Finish::gelu) {
    if (kFinish == Finish::gelu && arguments.bias != nullptr) {
#pragma unroll
      for (int tile = 0; tile < 16; ++tile) {
        const int at = column + tile * 8 + 2 * (lane & 3);
        const float low = at < arguments.columns ? __ldg(arguments.bias + at) : 0.f;
        const float high = at < arguments.columns ? __ldg(arguments.bias + at + 1) : 0.f;
        sums[4 * tile] += low;
        sums[4 * tile + 1] += high;
        sums[4 * tile + 2] += low;
        sums[4 * tile + 3] += high;
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const WarpRows rows = rows_of(chunk);
#pragma unroll
      for (int pair = 0; pair < 4; pair += 2) {  // 16 numbers a lane side by side
        const float* const part = sums + chunk * 32 + pair * 8;
        std::uint32_t packed[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) packed[i / 4][i % 4] = pack(part[2 * i], part[2 * i + 1]);
        store_matrices(rows.matrix_row(staging, pair), packed[0]);
        store_matrices(rows.matrix_row(staging, pair + 1), packed[1]);
        if constexpr (kFinish == Finish::gelu) {
          float x[16], value[16], unused[16];
#pragma unroll
          for (int i = 0; i < 16; ++i) x[i] = part[i];
          gelu_short(x, value, unused);
#pragma unroll
          for (int i = 0; i < 8; ++i) packed[i / 4][i % 4] = pack(value[2 * i], value[2 * i + 1]);
          store_matrices(rows.matrix_row(staging + staging_bytes, pair), packed[0]);
          store_matrices(rows.matrix_row(staging + staging_bytes, pair + 1), packed[1]);
        }
      }
      __syncwarp();
      store_rows(rows, staging, arguments.result);
      if constexpr (kFinish == Finish::gelu) store_rows(rows, staging + staging_bytes, arguments.activated);
      __syncwarp();
    }
  } else {
    float gates[2], totals[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int j = row + 8 * half + (lane >> 2);
      gates[half] = arguments.gates != nullptr && j < row_end ? arguments.gates[arguments.order[j]] : 1.f;
    }
    uint4 pieces[4];
    load_rows(rows_of(0), arguments.result, pieces);
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const WarpRows rows = rows_of(chunk);
#pragma unroll
      for (int pass = 0; pass < 4; ++pass) store_shared(rows.piece_place(staging, pass), pieces[pass]);
      __syncwarp();
      if (chunk + 1 < chunks) load_rows(rows_of(chunk + 1), arguments.result, pieces);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const float* const part = sums + chunk * 32 + pair * 8;
        std::uint32_t packed[4];
        load_matrices(packed, rows.matrix_row(staging, pair));
        float x[8], value[8], derivative[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[2 * i] = low_half(packed[i]);
          x[2 * i + 1] = high_half(packed[i]);
        }
        gelu_short(x, value, derivative);
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // matrices 0 and 2 hold the upper eight rows, 1 and 3 the lower
          const float low = part[2 * i], high = part[2 * i + 1], gate = gates[i & 1];
          totals[i & 1] = fmaf(low, value[2 * i], fmaf(high, value[2 * i + 1], totals[i & 1]));
          packed[i] = pack(gate * low * derivative[2 * i], gate * high * derivative[2 * i + 1]);
        }
        store_matrices(rows.matrix_row(staging + staging_bytes, pair), packed);
      }
      __syncwarp();
      store_rows(rows, staging + staging_bytes, arguments.result);
      __syncwarp();
    }
    if (arguments.row_sums == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // one part a tile; added up in a fixed order later
      float total = totals[half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int j = row + 8 * half + (lane >> 2);
      if ((lane & 3) == 0 && j < row_end)
        arguments.row_sums[static_cast<std::int64_t>(j) * arguments.slots + slot] = total;
    }
  }
}

#endif

}  // namespace some::cuda
