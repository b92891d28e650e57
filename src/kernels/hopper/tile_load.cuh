// Operand loads of the grouped GEMMs on Hopper: stage sizes, and the TMA descriptors of the matrices.
#pragma once

#include "kernels/gemm/grouped_gemm_kernel.cuh"
#include "kernels/hopper/instructions.cuh"

namespace some::cuda {

inline constexpr int block_columns = 128;
inline constexpr int block_depth = 64;  // 128 bytes of bf16: one row of the 128-byte swizzle
inline constexpr int a_bytes = tile_rows * block_depth * 2;
inline constexpr int b_bytes = block_columns * block_depth * 2;
// Limits of the factor that computes `low` in a low-rank correction, in tiles of 256 columns: one row per rank, at most
// eight ranks.
inline constexpr int max_ranks = 8;
inline constexpr int ranks_bytes = max_ranks * block_depth * 2;

// How b's matrices are stored, and in which order their columns are loaded: as stored, or woven. The MMA leaves lane q
// of the four lanes that share a row with columns 2q and 2q+1 of every eight. Woven, columns 8q+2t and 8q+2t+1 of each
// 32 are loaded into these places of the t-th eight, so that a lane ends up with adjacent columns.
enum class Columns { rows, woven, transposed };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Columns kColumns>
__device__ __forceinline__ void load_matrix(const CUtensorMap* map_b, std::uint32_t target, std::uint32_t barrier,
                                            int start, int first_column, int group, int columns) {
  if constexpr (kColumns == Columns::woven) {
    tma_load_box(target, map_b, barrier, start, 0, 0, 0, (group * columns + first_column) / 32);
  } else if constexpr (kColumns == Columns::transposed) {
    tma_load_box(target, map_b, barrier, first_column, start, group);
    tma_load_box(target + b_bytes / 2, map_b, barrier, first_column + 64, start, group);
  } else {
    tma_load_box(target, map_b, barrier, start, first_column, group);
  }
}

// Prefetches what a backward epilogue reads into L2 during the GEMM; each thread takes kRows rows.
template <int kRows, int kStride>
__device__ __forceinline__ void prefetch_result(const GemmArguments& arguments, const Tile& tile, int first_column,
                                                int thread) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int j = min(tile.begin + thread + kStride * i, tile.end - 1);
    const bf16* const row =
        static_cast<const bf16*>(arguments.result) + static_cast<std::int64_t>(j) * arguments.columns;
    prefetch_l2(row + first_column);
    if (first_column + 64 < arguments.columns) prefetch_l2(row + first_column + 64);
  }
}

#endif

// The driver function that creates a TMA descriptor. It is looked up at run time so that the program does not link to
// the driver.
using EncodeFunction = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                    const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

inline EncodeFunction encode_function() {
  static const EncodeFunction function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    SOME_CUDA_CHECK(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
      failed(Code::gpu_failed, "the GPU's driver has no cuTensorMapEncodeTiled: a newer driver is needed");
    return reinterpret_cast<EncodeFunction>(entry);
  }();
  return function;
}

template <int kDims>
CUtensorMap encode(const void* data, const cuuint64_t (&dims)[kDims], const cuuint64_t (&strides)[kDims - 1],
                   const cuuint32_t (&box)[kDims]) {
  CUtensorMap map;
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const CUresult status =
      encode_function()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kDims, const_cast<void*>(data), dims, strides, box,
                        steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    failed(Code::gpu_failed, "cuTensorMapEncodeTiled failed with status {}", static_cast<int>(status));
  return map;
}

// Returns a descriptor of a bf16 tensor [outer, rows, inner], read in boxes of box_rows x 64; elements outside read as
// zero.
inline CUtensorMap describe(const void* data, std::int64_t inner, std::int64_t rows, std::int64_t outer, int box_rows) {
  const cuuint64_t x = static_cast<cuuint64_t>(inner), y = static_cast<cuuint64_t>(rows);
  return encode<3>(data, {x, y, static_cast<cuuint64_t>(outer)}, {x * 2, x * y * 2},
                   {64, static_cast<cuuint32_t>(box_rows), 1});
}

// Returns a descriptor of a bf16 tensor [rows, inner], read in boxes of 128 rows x 64 with its row 32g + 8q + 2t + p as
// row 32g + 8t + 2q + p.
inline CUtensorMap describe_woven(const void* data, std::int64_t inner, std::int64_t rows) {
  const cuuint64_t x = static_cast<cuuint64_t>(inner);
  return encode<5>(data, {x, 2, 4, 4, static_cast<cuuint64_t>(rows / 32)}, {x * 2, 8 * x * 2, 2 * x * 2, 32 * x * 2},
                   {64, 2, 4, 4, 4});
}

template <Columns kColumns>
inline CUtensorMap describe_matrices(const GroupedGemm& product) {
  if constexpr (kColumns == Columns::woven) {
    return describe_woven(product.b, product.depth, product.columns * product.groups);
  } else if constexpr (kColumns == Columns::transposed) {
    return describe(product.b, product.columns, product.depth, product.groups, 64);
  } else {
    return describe(product.b, product.depth, product.columns, product.groups, block_columns);
  }
}

}  // namespace some::cuda
