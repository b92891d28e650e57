// Gradient of the shared input of two dense layers, dx (+)= dy1 W1 + dy2 W2, as one GEMM whose sum runs through both.
// Separate GEMMs would be small: 6,900 rows and 512 columns are 108 tiles of 128 x 256, at most one per multiprocessor,
// and a GEMM of 256 or 512 terms takes as long to begin and to end as to multiply.
//
// For 64 terms a tile takes 1,024 cycles of the tensor cores and 1,152 of shared memory: each of two warpgroups, with
// 64 rows, reads 48 KiB, and TMA writes 48. The values that the result is added to are fetched before the first MMA.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/hopper/pipeline.cuh"
#include "kernels/hopper/tile_load.cuh"
#include "ops/cuda/input_gradients.h"

namespace some::cuda {
namespace {

constexpr int box_bytes = block_depth * 64 * 2;  // box of a weight: 64 terms, 64 columns
constexpr int stages = 4;

// Bytes per stage. kSides: number of 128-column blocks in a tile. a_bytes: 128 rows, 64 terms.
template <int kSides>
inline constexpr int stage_bytes = a_bytes + kSides * 2 * box_bytes;

struct TwoTermGemm {
  CUtensorMap dy[2], weight[2];
  int steps[2];        // steps of 64 terms per product
  bf16* result;        // [rows, columns]
  const bf16* before;  // [rows, columns]: the values added to, or the input of the GELU; may be null if there are none
  int rows, columns, column_tiles, tiles;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int kSides>
using Ring = Stages<stages, stage_bytes<kSides>>;

template <int kSides>
__device__ __forceinline__ void load_tiles(const TwoTermGemm& all, Ring<kSides> stage) {
  for (int number = blockIdx.x; number < all.tiles; number += gridDim.x) {
    const int row = number / all.column_tiles * tile_rows, column = number % all.column_tiles * kSides * 128;
    for (int which = 0; which < 2; ++which) {
      for (int step = 0; step < all.steps[which]; ++step) {
        mbarrier_wait(stage.empty(stage.stage), stage.parity);
        const std::uint32_t target = stage.at(stage.stage), barrier = stage.full(stage.stage);
        mbarrier_expect_bytes(barrier, stage_bytes<kSides>);
        tma_load_box(target, &all.dy[which], barrier, step * block_depth, row, 0);
        for (int part = 0; part < 2 * kSides; ++part) {
          tma_load_box(target + a_bytes + part * box_bytes, &all.weight[which], barrier, column + part * 64,
                       step * block_depth, 0);
        }
        stage.advance();
      }
    }
  }
}

template <int kSides, bool kSlope>
__device__ __forceinline__ void multiply_tiles(const TwoTermGemm& all, Ring<kSides> stage) {
  const int half = threadIdx.x / 128 - 1, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  for (int number = blockIdx.x; number < all.tiles; number += gridDim.x) {
    const int row = number / all.column_tiles * tile_rows + half * 64 + warp * 16 + (lane >> 2);
    const int column = number % all.column_tiles * kSides * 128 + (lane & 3) * 8;
    // Visits this thread's pieces of eight adjacent columns: four for each of two rows in every 128 columns.
    const auto each = [&](auto&& take) {
#pragma unroll
      for (int i = 0; i < 8 * kSides; ++i) {
        const int m = row + (i >> 2 & 1) * 8, n = column + (i >> 3) * 128 + (i & 3) * 32;
        take(i, m < all.rows && n < all.columns, static_cast<std::int64_t>(m) * all.columns + n);
      }
    };
    uint4 before[8 * kSides];
    each([&](int i, bool there, std::int64_t place) {
      before[i] =
          there && all.before != nullptr ? *reinterpret_cast<const uint4*>(all.before + place) : make_uint4(0, 0, 0, 0);
    });
    float sums[kSides][64];
    multiply_stages<1, false>(sums, stage, all.steps[0] + all.steps[1], half, lane);
    each([&](int i, bool there, std::int64_t place) {
      std::uint32_t pieces[4] = {before[i].x, before[i].y, before[i].z, before[i].w};
      transpose_quad(pieces, lane);
      const float* const first = sums[i >> 3] + 16 * (i & 3) + 2 * (i >> 2 & 1);
      if constexpr (kSlope) {
        float x[8], value[8], slope[8];
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          x[2 * p] = low_half(pieces[p]);
          x[2 * p + 1] = high_half(pieces[p]);
        }
        gelu_short(x, value, slope);
#pragma unroll
        for (int p = 0; p < 4; ++p) pieces[p] = pack(first[4 * p] * slope[2 * p], first[4 * p + 1] * slope[2 * p + 1]);
      } else {
#pragma unroll
        for (int p = 0; p < 4; ++p)
          pieces[p] = pack(first[4 * p] + low_half(pieces[p]), first[4 * p + 1] + high_half(pieces[p]));
      }
      transpose_quad(pieces, lane);
      if (there) {
        *reinterpret_cast<uint4*>(all.result + place) = make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
      }
    });
  }
}

#endif

// Computes the GEMM of both terms, plus `before`. kSlope: times GELU'(before) instead.
template <int kSides, bool kSlope>
__global__ void __launch_bounds__(ring_threads, 1) two_products_kernel(const __grid_constant__ TwoTermGemm all) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  run_producer_consumer<Ring<kSides>>(
      memory, [&](const Ring<kSides>& stage) { load_tiles<kSides>(all, stage); },
      [&](const Ring<kSides>& stage) { multiply_tiles<kSides, kSlope>(all, stage); });
#endif
}

// Describes one more term of the GEMM. Returns false if TMA cannot read it.
bool describe_term(TwoTermGemm& all, int which, const Tensor& dy, const Tensor& weight) {
  if (dy.dtype() != DType::bf16 || weight.dtype() != DType::bf16 || dy.dim(1) % 8 != 0 || all.columns % 8 != 0 ||
      !all_aligned16(dy.raw(), weight.raw()))
    return false;
  all.dy[which] = describe(dy.raw(), dy.dim(1), all.rows, 1, tile_rows);
  all.weight[which] = describe(weight.raw(), all.columns, dy.dim(1), 1, block_depth);
  all.steps[which] = static_cast<int>((dy.dim(1) + block_depth - 1) / block_depth);
  return true;
}

template <int kSides, bool kSlope>
void launch(const Context& ctx, TwoTermGemm& all) {
  all.column_tiles = (all.columns + kSides * 128 - 1) / (kSides * 128);
  all.tiles = (all.rows + tile_rows - 1) / tile_rows * all.column_tiles;
  constexpr int shared = ring_bytes<stages, stage_bytes<kSides>>;
  const auto kernel = two_products_kernel<kSides, kSlope>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  launch_dependent(ctx, kernel, static_cast<unsigned>(std::min(all.tiles, ctx.cuda->multiprocessors)), ring_threads,
                   shared, all);
}

TwoTermGemm towards(const Tensor& result, const Tensor* before) {
  TwoTermGemm all{};
  all.rows = static_cast<int>(result.dim(0));
  all.columns = static_cast<int>(result.dim(1));
  all.result = elements_of<bf16>(result);
  all.before = before != nullptr ? elements_of<bf16>(*before) : nullptr;
  return all;
}

bool fits(const Context& ctx, const Tensor& result, const Tensor* before) {
  return ctx.cuda->major == 9 && ctx.compute == DType::bf16 && result.dim(0) > 0 && aligned16(result.raw()) &&
         (before == nullptr || aligned16(before->raw()));
}

}  // namespace

bool add_two_layer_gemm(Context& ctx, const Tensor& first_dy, const Param& first, const Tensor& second_dy,
                        const Param& second, Tensor& dx, Into into) {
  const Tensor* const before = into == Into::add ? &dx : nullptr;
  if (!fits(ctx, dx, before)) return false;
  TwoTermGemm all = towards(dx, before);
  if (!describe_term(all, 0, first_dy, first.compute) || !describe_term(all, 1, second_dy, second.compute))
    return false;
  launch<2, false>(ctx, all);
  return true;
}

bool gemm_times_gelu_slope(Context& ctx, const Tensor& dy, const Param& weight, const Tensor& pre, Tensor& dpre) {
  if (!fits(ctx, dpre, &pre)) return false;
  TwoTermGemm all = towards(dpre, &pre);
  if (!describe_term(all, 0, dy, weight.compute)) return false;
  all.dy[1] = all.dy[0];
  all.weight[1] = all.weight[0];
  launch<1, true>(ctx, all);
  return true;
}

}  // namespace some::cuda
