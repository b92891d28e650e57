// What a Hopper warpgroup does with a finished tile. Unless its columns are woven, each warp passes its rows through a
// few KiB of shared memory of its own, so that global memory is read and written in whole 128-byte lines.
#pragma once

#include "ops/cuda_hopper.cuh"
#include "ops/grouped_gemm_kernel.cuh"

namespace some::cuda {

// 16 rows of 64 columns; 16-byte pieces permuted by row against bank conflicts.
inline constexpr int staging_bytes = 16 * 128;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct WarpRows {
  int first, end;       // rows of the result; those from `end` on belong to another group
  int column, columns;  // this part's first column, and how many there are in all
  int lane;

  // One pass covers four rows, eight lanes each. Where this lane's piece of the first pass is, and how many rows from
  // there on are the group's (none where the columns have ended).
  __device__ __forceinline__ std::int64_t place() const {
    return static_cast<std::int64_t>(first + (lane >> 3)) * columns + column + (lane & 7) * 8;
  }
  __device__ __forceinline__ int left() const {
    return column + (lane & 7) * 8 < columns ? end - first - (lane >> 3) : 0;
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
  uint4 pieces[4];
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) pieces[pass] = load_shared(rows.piece_place(staging, pass));
  bf16* const place = static_cast<bf16*>(target) + rows.place();
  const int left = rows.left();
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    if (4 * pass < left) {
      *reinterpret_cast<uint4*>(place + static_cast<std::int64_t>(4 * pass) * rows.columns) = pieces[pass];
    }
  }
}

__device__ __forceinline__ void load_rows(const WarpRows& rows, const void* source, uint4 (&pieces)[4]) {
  const bf16* const place = static_cast<const bf16*>(source) + rows.place();
  const int left = rows.left();
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    pieces[pass] = make_uint4(0, 0, 0, 0);
    if (4 * pass < left) {
      pieces[pass] = *reinterpret_cast<const uint4*>(place + static_cast<std::int64_t>(4 * pass) * rows.columns);
    }
  }
}

// A warp's share of a tile: 16 rows of each of two blocks of 64, 128 columns. kWoven: the matrix's columns were loaded
// in an order that leaves each lane with eight neighbours of a row, so that it can store them as they are; otherwise
// the tile goes through shared memory in parts of 16 rows and 64 columns.
template <Finish kFinish, bool kWoven>
struct WarpTile {
  const ProductArguments& arguments;
  int first, end, column, slot;
  std::uint32_t staging;  // this warp's, two pieces of staging_bytes
  int lane;
  uint4 pieces[4];  // for a backward finish: what the next part reads
  float gates[4];   // and the gates of this lane's rows

  __device__ __forceinline__ WarpRows rows_of(int part) const {
    return {first + (part >> 1) * 64, end, column + (part & 1) * 64, arguments.columns, lane};
  }

  // What needs memory, asked for before the product is made.
  __device__ __forceinline__ void start() {
    if constexpr (kFinish == Finish::gelu_backward) {
      load_rows(rows_of(0), arguments.result, pieces);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = first + (i >> 1) * 64 + (i & 1) * 8 + (lane >> 2);
        gates[i] = arguments.gates != nullptr && j < end ? arguments.gates[arguments.order[j]] : 1.f;
      }
    }
  }

  __device__ __forceinline__ void finish(const float (&sums)[2][64]) {
    if constexpr (kWoven) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        if (first + block * 64 < end) finish_woven(sums[block], first + block * 64 + (lane >> 2));
      }
    } else {
      float totals[2] = {};
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        if (first + (part >> 1) * 64 >= end) break;
        if constexpr (kFinish == Finish::gelu_backward) {
          finish_backward(sums[part >> 1] + (part & 1) * 32, part, totals);
        } else {
          finish_forward(sums[part >> 1] + (part & 1) * 32, part);
        }
      }
    }
  }

  // 32 columns at a time: this lane has eight neighbours of each of two rows.
  __device__ __forceinline__ void finish_woven(const float (&sums)[64], int row) {
    const int columns = arguments.columns;
    const std::int64_t place = static_cast<std::int64_t>(row) * columns + column + (lane & 3) * 8;
    const auto store = [&](void* target, int group, const float(&x)[16]) {
      bf16* const at = static_cast<bf16*>(target) + place + group * 32;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[i] = pack(x[4 * i + 2 * half], x[4 * i + 2 * half + 1]);
        if (row + 8 * half < end) {
          *reinterpret_cast<uint4*>(at + half * 8 * static_cast<std::int64_t>(columns)) =
              make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
      }
    };
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      if (column + group * 32 >= columns) break;
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = sums[group * 16 + i];
      if (kFinish == Finish::gelu && arguments.bias != nullptr) {
        const float* const bias = arguments.bias + column + group * 32 + (lane & 3) * 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float added = __ldg(bias + i);
          x[(i >> 1) * 4 + (i & 1)] += added;
          x[(i >> 1) * 4 + (i & 1) + 2] += added;
        }
      }
      store(arguments.result, group, x);
      if constexpr (kFinish == Finish::gelu) {
        float value[16], unused[16];
        gelu_short(x, value, unused);
        store(arguments.activated, group, value);
      }
    }
  }

  __device__ __forceinline__ void finish_forward(const float* sums, int part) {
    const WarpRows rows = rows_of(part);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = sums[half * 16 + i];
      if (kFinish == Finish::gelu && arguments.bias != nullptr) {
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
          const int at = rows.column + (half * 4 + tile) * 8 + 2 * (lane & 3);
          const float low = at < arguments.columns ? __ldg(arguments.bias + at) : 0.f;
          const float high = at < arguments.columns ? __ldg(arguments.bias + at + 1) : 0.f;
          x[4 * tile] += low;
          x[4 * tile + 1] += high;
          x[4 * tile + 2] += low;
          x[4 * tile + 3] += high;
        }
      }
      store_tiles(rows, staging, half, x);
      if constexpr (kFinish == Finish::gelu) {
        float value[16], unused[16];
        gelu_short(x, value, unused);
        store_tiles(rows, staging + staging_bytes, half, value);
      }
    }
    __syncwarp();
    store_rows(rows, staging, arguments.result);
    if constexpr (kFinish == Finish::gelu) store_rows(rows, staging + staging_bytes, arguments.activated);
    __syncwarp();
  }

  __device__ __forceinline__ void finish_backward(const float* sums, int part, float (&totals)[2]) {
    const WarpRows rows = rows_of(part);
    const bool lower = part >= 2;
    const float part_gates[2] = {lower ? gates[2] : gates[0], lower ? gates[3] : gates[1]};
#pragma unroll
    for (int pass = 0; pass < 4; ++pass) store_shared(rows.piece_place(staging, pass), pieces[pass]);
    __syncwarp();
    if (part < 3 && first + ((part + 1) >> 1) * 64 < end) load_rows(rows_of(part + 1), arguments.result, pieces);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const products = sums + half * 16;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        std::uint32_t packed[4];
        load_matrices(packed, rows.matrix_row(staging, 2 * half + pair));
        float x[8], value[8], derivative[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[2 * i] = low_half(packed[i]);
          x[2 * i + 1] = high_half(packed[i]);
        }
        gelu_short(x, value, derivative);
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // matrices 0 and 2 hold the upper eight rows, 1 and 3 the lower
          const float low = products[8 * pair + 2 * i], high = products[8 * pair + 2 * i + 1], gate = part_gates[i & 1];
          totals[i & 1] = fmaf(low, value[2 * i], fmaf(high, value[2 * i + 1], totals[i & 1]));
          packed[i] = pack(gate * low * derivative[2 * i], gate * high * derivative[2 * i + 1]);
        }
        store_matrices(rows.matrix_row(staging + staging_bytes, 2 * half + pair), packed);
      }
    }
    __syncwarp();
    store_rows(rows, staging + staging_bytes, arguments.result);
    __syncwarp();
    if ((part & 1) == 0 || arguments.row_sums == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // one part of a row's sum a tile; added up in a fixed order later
      float total = totals[half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int j = rows.first + 8 * half + (lane >> 2);
      if ((lane & 3) == 0 && j < end) arguments.row_sums[static_cast<std::int64_t>(j) * arguments.slots + slot] = total;
      totals[half] = 0.f;
    }
  }

  // Four column tiles of 16 rows.
  static __device__ __forceinline__ void store_tiles(const WarpRows& rows, std::uint32_t staging, int half,
                                                     const float (&x)[16]) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      std::uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[i] = pack(x[8 * pair + 2 * i], x[8 * pair + 2 * i + 1]);
      store_matrices(rows.matrix_row(staging, 2 * half + pair), packed);
    }
  }
};

#endif

}  // namespace some::cuda
