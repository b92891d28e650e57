// Shared by the grouped GEMM kernels: their arguments and their epilogue.
#pragma once

#include "kernels/cuda/primitives.cuh"
#include "kernels/gemm/grouped_gemm.h"

namespace some::cuda {

struct GemmArguments {
  const void* a;
  const void* b;
  const Tile* tiles;
  const std::int32_t* order;
  void* result;
  void* activated;
  const float* gates;
  float* row_sums;
  int gather;
  int rows, columns, depth;
  int column_tiles, slots;
  void* low;  // this and the following: a low-rank correction, if rank > 0
  const void* factor;
  bool factor_transposed;
  const void* inner;
  int rank;
};

inline GemmArguments arguments_of(const GroupedGemm& product, int column_tile, int slot_width) {
  GemmArguments arguments;
  arguments.a = product.a;
  arguments.b = product.b;
  arguments.tiles = product.tiles;
  arguments.order = product.order;
  arguments.result = product.result;
  arguments.activated = product.activated;
  arguments.gates = product.gates;
  arguments.row_sums = product.row_sums;
  arguments.gather = product.gather;
  arguments.rows = static_cast<int>(product.rows);
  arguments.columns = static_cast<int>(product.columns);
  arguments.depth = static_cast<int>(product.depth);
  arguments.column_tiles = static_cast<int>((product.columns + column_tile - 1) / column_tile);
  arguments.slots = static_cast<int>((product.columns + slot_width - 1) / slot_width);
  arguments.low = product.low;
  arguments.factor = product.factor;
  arguments.factor_transposed = product.factor_transposed;
  arguments.inner = product.inner;
  arguments.rank = product.rank;
  return arguments;
}

__device__ __forceinline__ int row_tile_count(const GemmArguments& arguments) {
  return arguments.tiles != nullptr ? arguments.tiles[0].group : (arguments.rows + tile_rows - 1) / tile_rows;
}

__device__ __forceinline__ Tile row_tile(const GemmArguments& arguments, int index) {
  if (arguments.tiles != nullptr) {
    const int4 entry = __ldg(reinterpret_cast<const int4*>(arguments.tiles) + 1 + index);
    return {entry.x, entry.y, entry.z, 0};
  }
  return {0, index * tile_rows, min((index + 1) * tile_rows, arguments.rows), 0};
}

// Returns the row of `a` from which row j of the result is computed.
__device__ __forceinline__ int source_row(const GemmArguments& arguments, int j) {
  return arguments.gather == 0 ? j : arguments.order[j] / arguments.gather;
}

// Runs the epilogue on 16 rows and 8*kTiles columns that one warp holds in the accumulator layout. All lanes must take
// part. Rows at or after row_end belong to another group and are not changed.
template <Epilogue kEpilogue, int kTiles>
__device__ __forceinline__ void epilogue_rows(const float* sums, const GemmArguments& arguments, int row, int row_end,
                                              int column, int slot, int lane) {
  static_assert(kTiles % 4 == 0);
  const int quad = lane & 3;
  const int columns = arguments.columns;
  bf16* const result = static_cast<bf16*>(arguments.result);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int j = row + (lane >> 2) + 8 * half;
    const bool in_group = j < row_end;
    const std::int64_t row_start = static_cast<std::int64_t>(j) * columns;
    if constexpr (!reads_result(kEpilogue)) {
#pragma unroll
      for (int group = 0; group < kTiles; group += 4) {
        std::uint32_t values[4], activated[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float low = sums[(group + i) * 4 + 2 * half], high = sums[(group + i) * 4 + 2 * half + 1];
          if constexpr (activates(kEpilogue)) {
            const Gelu first = gelu_short(low), second = gelu_short(high);
            activated[i] = pack(first.value, second.value);
            if constexpr (kEpilogue == Epilogue::gelu_slope) low = first.derivative, high = second.derivative;
          }
          values[i] = pack(low, high);
        }
        const int at = column + (group + quad) * 8;
        const bool valid = in_group && at < columns;
        transpose_quad(values, lane);
        if (valid)
          *reinterpret_cast<uint4*>(result + row_start + at) = make_uint4(values[0], values[1], values[2], values[3]);
        if constexpr (activates(kEpilogue)) {
          transpose_quad(activated, lane);
          bf16* const target = static_cast<bf16*>(arguments.activated);
          if (valid) {
            *reinterpret_cast<uint4*>(target + row_start + at) =
                make_uint4(activated[0], activated[1], activated[2], activated[3]);
          }
        }
      }
    } else {
      uint4 loaded[kTiles / 4];
#pragma unroll
      for (int group = 0; group < kTiles; group += 4) {
        const int at = column + (group + quad) * 8;
        loaded[group / 4] = make_uint4(0, 0, 0, 0);
        if (in_group && at < columns) loaded[group / 4] = *reinterpret_cast<const uint4*>(result + row_start + at);
      }
      const float gate = arguments.gates != nullptr && in_group ? arguments.gates[arguments.order[j]] : 1.f;
      float sum = 0.f;
#pragma unroll
      for (int group = 0; group < kTiles; group += 4) {
        const uint4 word = loaded[group / 4];
        std::uint32_t values[4] = {word.x, word.y, word.z, word.w};
        transpose_quad(values, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float low = sums[(group + i) * 4 + 2 * half], high = sums[(group + i) * 4 + 2 * half + 1];
          if constexpr (kEpilogue == Epilogue::slope_backward) {
            values[i] = pack(gate * low * low_half(values[i]), gate * high * high_half(values[i]));
          } else {
            const Gelu first = gelu_short(low_half(values[i])), second = gelu_short(high_half(values[i]));
            sum = fmaf(low, first.value, fmaf(high, second.value, sum));
            values[i] = pack(gate * low * first.derivative, gate * high * second.derivative);
          }
        }
        transpose_quad(values, lane);
        const int at = column + (group + quad) * 8;
        if (in_group && at < columns) {
          *reinterpret_cast<uint4*>(result + row_start + at) = make_uint4(values[0], values[1], values[2], values[3]);
        }
      }
      if (kEpilogue == Epilogue::gelu_backward &&
          arguments.row_sums != nullptr) {  // one partial sum per warp; they are added up later, in a fixed order
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (quad == 0 && in_group && slot < arguments.slots) {
          arguments.row_sums[static_cast<std::int64_t>(j) * arguments.slots + slot] = sum;
        }
      }
    }
  }
}

void launch_plain(Context& ctx, const GroupedGemm& product);
void launch_warp(Context& ctx, const GroupedGemm& product);
void launch_warpgroup(Context& ctx, const GroupedGemm& product);
// Launches a Hopper kernel; returns false if its kernels cannot compute this GEMM.
bool launch_resident(Context& ctx, const GroupedGemm& product);
bool launch_wide(Context& ctx, const GroupedGemm& product);
// True if launch_resident or launch_wide would compute the GEMM in tiles of 256 columns, whose kernels can compute
// `low` themselves.
bool uses_wide_resident_tiles(const Context& ctx, const GroupedGemm& product);
bool uses_wide_tiles(const Context& ctx, const GroupedGemm& product);

}  // namespace some::cuda
