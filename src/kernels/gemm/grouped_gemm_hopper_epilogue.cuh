// Epilogue of a tile on Hopper. Unless the columns are woven, each warp passes its rows through a few KiB of its own
// shared memory, so that global memory is read and written in whole 128-byte lines.
#pragma once

#include "kernels/gemm/grouped_gemm_kernel.cuh"
#include "kernels/gemm/low_rank_epilogue.cuh"
#include "kernels/hopper/instructions.cuh"

namespace some::cuda {

// A staging buffer has 16 rows of 64 columns; the 16-byte pieces of a row are permuted by its number to avoid bank
// conflicts.
inline constexpr int staging_bytes = 16 * 128;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct WarpRows {
  int first, end;       // rows of the result; those from `end` on belong to another group
  int column, columns;  // this part's first column, and the number of columns of the result
  int lane;

  // One pass covers four rows, with eight lanes per row. place(): offset of this lane's piece in the first pass;
  // left(): number of rows from there on that belong to the group (none if the lane is beyond the last column).
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
  // Returns the address of this lane's row of the matrices of column tiles 2*pair and 2*pair+1.
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

// The part of a tile that a backward epilogue processes at a time: 16 rows of 32 columns. In shared memory these are
// rows of 64 bytes whose 16-byte pieces are permuted by row. One pass covers eight rows, with four lanes per row.
struct BackwardPart {
  int left;  // number of rows, starting at this lane's first one, that belong to the group
  int columns, lane;
  bf16* place;
  std::uint32_t staging;

  __device__ __forceinline__ BackwardPart(void* result, int first, int end, int column, int all_columns, int this_lane,
                                          std::uint32_t this_staging)
      : columns(all_columns), lane(this_lane), staging(this_staging) {
    const int row = first + (lane >> 2), at = column + (lane & 3) * 8;
    left = at < columns ? end - row : 0;
    place = static_cast<bf16*>(result) + static_cast<std::int64_t>(row) * columns + at;
  }
  __device__ __forceinline__ std::uint32_t at(int row, int piece) const {
    return staging + row * 64 + ((piece ^ ((row >> 1) & 3)) << 4);
  }
  __device__ __forceinline__ std::uint32_t piece(int pass) const { return at(pass * 8 + (lane >> 2), lane & 3); }
  // Returns the address of this lane's row of the matrices of column tiles 2*pair and 2*pair+1.
  __device__ __forceinline__ std::uint32_t matrix_row(int pair) const {
    const int matrix = lane >> 3;
    return at((matrix & 1) * 8 + (lane & 7), 2 * pair + (matrix >> 1));
  }
  // Starts the copies without waiting for them; rows that do not belong to the group are filled with zeros.
  __device__ __forceinline__ void fetch() const {
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
      const bool valid = 8 * pass < left;
      cp_async(piece(pass), valid ? place + static_cast<std::int64_t>(8 * pass) * columns : place, valid);
    }
  }
  __device__ __forceinline__ void store() const {
    const uint4 pieces[2] = {load_shared(piece(0)), load_shared(piece(1))};
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
      if (8 * pass < left) {
        *reinterpret_cast<uint4*>(place + static_cast<std::int64_t>(8 * pass) * columns) = pieces[pass];
      }
    }
  }
};

// One warp's part of a tile: 16 rows out of each of kBlocks blocks of 64, and 128 columns. kWoven: the matrix's columns
// were loaded in an order that leaves each lane with eight adjacent columns of a row, which it can store directly;
// otherwise the tile goes through shared memory in parts of 16 rows and 64 columns. kCorrected: a low-rank correction
// is added. This is a template parameter so that kernels without a correction do not spend registers on it.
template <Epilogue kEpilogue, bool kWoven, int kBlocks, bool kCorrected>
struct WarpTile {
  const GemmArguments& arguments;
  int first, end, column, slot;
  std::uint32_t staging;  // this warp's staging_bytes; twice as many if the epilogue activates and is not woven
  int lane;
  int group;                 // group of these rows
  float gates[2 * kBlocks];  // gates of this lane's rows, for a backward epilogue

  __device__ __forceinline__ WarpRows rows_of(int part) const {
    return {first + (part >> 1) * 64, end, column + (part & 1) * 64, arguments.columns, lane};
  }

  // Requests the data that finish() needs from memory, before the GEMM is computed.
  __device__ __forceinline__ void start() {
    if constexpr (reads_result(kEpilogue)) {
      if (first < end) {  // two parts are in flight during the GEMM
        fetch_part(0);
        fetch_part(1);
      }
#pragma unroll
      for (int i = 0; i < 2 * kBlocks; ++i) {
        const int j = first + (i >> 1) * 64 + (i & 1) * 8 + (lane >> 2);
        gates[i] = arguments.gates != nullptr && j < end ? arguments.gates[arguments.order[j]] : 1.f;
      }
    }
  }

  __device__ __forceinline__ void finish(float (&sums)[kBlocks][64]) {
    if constexpr (kCorrected) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int row = first + block * 64;
        if (row < end) add_low_rank<16, kWoven>(sums[block], arguments, group, row, end, column, lane);
      }
    }
    if constexpr (kWoven) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        if (first + block * 64 < end) finish_woven(sums[block], first + block * 64 + (lane >> 2));
      }
    } else {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        if (first + block * 64 >= end) break;
        if constexpr (reads_result(kEpilogue)) {
          finish_backward(sums[block], block);
        } else {
          finish_forward(sums[block], 2 * block);
          finish_forward(sums[block] + 32, 2 * block + 1);
        }
      }
    }
  }

  // Processes 32 columns at a time, of which this lane holds eight adjacent ones in each of two rows.
  __device__ __forceinline__ void finish_woven(const float (&sums)[64], int row) {
    const int columns = arguments.columns;
    const std::int64_t place = static_cast<std::int64_t>(row) * columns + column + (lane & 3) * 8;
    const auto store = [&](void* target, int group, int half, const float(&x)[8]) {
      if (row + 8 * half >= end) return;
      *reinterpret_cast<uint4*>(static_cast<bf16*>(target) + place + group * 32 +
                                half * 8 * static_cast<std::int64_t>(columns)) =
          make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
    };
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      if (column + group * 32 >= columns) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = sums[group * 16 + (i >> 1) * 4 + half * 2 + (i & 1)];
        if constexpr (activates(kEpilogue)) {
          float value[8], slope[8];
          gelu_short(x, value, slope);
          store(arguments.result, group, half, kEpilogue == Epilogue::gelu_slope ? slope : x);
          store(arguments.activated, group, half, value);
        } else {
          store(arguments.result, group, half, x);
        }
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
      if constexpr (activates(kEpilogue)) {
        float value[16], slope[16];
        gelu_short(x, value, slope);
        store_tiles(rows, staging, half, kEpilogue == Epilogue::gelu_slope ? slope : x);
        store_tiles(rows, staging + staging_bytes, half, value);
      } else {
        store_tiles(rows, staging, half, x);
      }
    }
    __syncwarp();
    store_rows(rows, staging, arguments.result);
    if constexpr (activates(kEpilogue)) store_rows(rows, staging + staging_bytes, arguments.activated);
    __syncwarp();
  }

  __device__ __forceinline__ BackwardPart backward_part(int part) const {
    return {arguments.result,
            first + (part >> 2) * 64,
            end,
            column + (part & 3) * 32,
            arguments.columns,
            lane,
            staging + (part & 1) * (staging_bytes / 2)};
  }
  __device__ __forceinline__ void fetch_part(int part) const {
    if (part < 4 * kBlocks && first + (part >> 2) * 64 < end) backward_part(part).fetch();
    cp_async_commit();
  }

  __device__ __forceinline__ void finish_backward(const float (&sums)[64], int block) {
    float totals[2] = {};
#pragma unroll
    for (int index = 0; index < 4; ++index) {
      const int number = 4 * block + index;
      const BackwardPart part = backward_part(number);
      cp_async_wait<1>();
      __syncwarp();
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        std::uint32_t packed[4];
        ldmatrix_x4(packed, part.matrix_row(pair));
        float slopes[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          slopes[2 * i] = low_half(packed[i]);
          slopes[2 * i + 1] = high_half(packed[i]);
        }
        const float* const products = sums + index * 16 + pair * 8;
        if constexpr (kEpilogue == Epilogue::gelu_backward) {
          float value[8], derivative[8];
          gelu_short(slopes, value, derivative);  // here `slopes` still holds the GELU's input
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            totals[i >> 1 & 1] = fmaf(products[i], value[i], totals[i >> 1 & 1]);
            slopes[i] = derivative[i];
          }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // matrices 0 and 2 hold the upper eight rows, 1 and 3 the lower
          const float gate = gates[2 * block + (i & 1)];
          packed[i] = pack(gate * products[2 * i] * slopes[2 * i], gate * products[2 * i + 1] * slopes[2 * i + 1]);
        }
        stmatrix_x4(part.matrix_row(pair), packed);  // overwrites the values that were read
      }
      __syncwarp();
      part.store();
      __syncwarp();
      fetch_part(number + 2);
    }
    if constexpr (kEpilogue == Epilogue::gelu_backward) {
      if (arguments.row_sums != nullptr) add_up(totals, first + block * 64);
    }
  }

  // Stores partial row sums. Each tile contributes one partial sum per row; they are added up later, in a fixed order.
  __device__ __forceinline__ void add_up(const float (&totals)[2], int row) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = totals[half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int j = row + 8 * half + (lane >> 2);
      if ((lane & 3) == 0 && j < end) arguments.row_sums[static_cast<std::int64_t>(j) * arguments.slots + slot] = total;
    }
  }

  // Stores four tiles of 16 rows and 8 columns.
  static __device__ __forceinline__ void store_tiles(const WarpRows& rows, std::uint32_t staging, int half,
                                                     const float (&x)[16]) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      std::uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[i] = pack(x[8 * pair + 2 * i], x[8 * pair + 2 * i + 1]);
      stmatrix_x4(rows.matrix_row(staging, 2 * half + pair), packed);
    }
  }
};

#endif

}  // namespace some::cuda
