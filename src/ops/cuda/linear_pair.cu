// Two dense layers that read the same x, as one GEMM on Hopper: pre = x W1^T + b with y = GELU(pre), and other = x
// W2^T. For 6,900 rows of 512 and 256 + 512 columns these are 108 tiles of 128 x 384, at most one per multiprocessor.
// Separate GEMMs would take longer to begin and to end than to multiply, and the GELU would be a third launch.
//
// For 64 terms a tile takes 1,536 cycles of the tensor cores and 1,664 of shared memory.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/hopper/pipeline.cuh"
#include "kernels/hopper/tile_load.cuh"
#include "ops/linear_pair.h"
#include "runtime/row_products.h"

namespace some::cuda {
namespace {

constexpr int tile_blocks = 3;  // blocks of 128 columns per tile
constexpr int stage_bytes = a_bytes + tile_blocks * b_bytes;
constexpr int stages = 3;
constexpr int shared_bytes = ring_bytes<stages, stage_bytes>;

struct TwoLayers {
  CUtensorMap x, weight[2];
  const bf16* bias;  // bias of the first layer; may be null
  bf16* result[2];
  bf16* activated;  // GELU output of the first layer
  int columns[2];
  int first_blocks;  // blocks of 128 columns of the first layer; those of the second follow
  int rows, steps, column_tiles, tiles;
};

// A block of 128 columns: the layer it belongs to, and its first column there.
struct Block {
  int layer, column;
  __device__ Block(const TwoLayers& all, int number) {
    layer = number < all.first_blocks ? 0 : 1;
    column = (number - (layer == 0 ? 0 : all.first_blocks)) * block_columns;
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using Ring = Stages<stages, stage_bytes>;

__device__ __forceinline__ void load_tiles(const TwoLayers& all, Ring stage) {
  for (int number = blockIdx.x; number < all.tiles; number += gridDim.x) {
    const int row = number / all.column_tiles * tile_rows, first = number % all.column_tiles * tile_blocks;
    for (int step = 0; step < all.steps; ++step) {
      mbarrier_wait(stage.empty(stage.stage), stage.parity);
      const std::uint32_t target = stage.at(stage.stage), barrier = stage.full(stage.stage);
      mbarrier_expect_bytes(barrier, stage_bytes);
      tma_load_box(target, &all.x, barrier, step * block_depth, row, 0);
      for (int i = 0; i < tile_blocks; ++i) {  // a block beyond the last one is filled with zeros
        const Block block(all, first + i);
        tma_load_box(target + a_bytes + i * b_bytes, &all.weight[block.layer], barrier, step * block_depth,
                     block.column, 0);
      }
      stage.advance();
    }
  }
}

// Adds the bias, rounds and stores this warp's 16 rows of a block, starting at row `row` (for this lane).
__device__ __forceinline__ void finish(const TwoLayers& all, const Block& block, const float (&sums)[64], int row,
                                       int lane) {
  const int columns = all.columns[block.layer];
  const bf16* const bias = block.layer == 0 ? all.bias : nullptr;
#pragma unroll
  for (int group = 0; group < 4; ++group) {
    const int first = block.column + group * 32;
    float2 shift[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int column = first + p * 8 + (lane & 3) * 2;
      const std::uint32_t pair =
          bias != nullptr && column < columns ? *reinterpret_cast<const std::uint32_t*>(bias + column) : 0u;
      shift[p] = make_float2(low_half(pair), high_half(pair));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t pieces[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int at = 4 * (4 * group + p) + 2 * half;
        pieces[p] = pack(sums[at] + shift[p].x, sums[at + 1] + shift[p].y);
      }
      transpose_quad(pieces, lane);
      const int column = first + (lane & 3) * 8;
      if (row + 8 * half >= all.rows || column >= columns) continue;
      const std::int64_t place = static_cast<std::int64_t>(row + 8 * half) * columns + column;
      *reinterpret_cast<uint4*>(all.result[block.layer] + place) =
          make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
      if (block.layer == 0) {
        float x[8], value[8], slope[8];
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          x[2 * p] = low_half(pieces[p]);
          x[2 * p + 1] = high_half(pieces[p]);
        }
        gelu_short(x, value, slope);
        *reinterpret_cast<uint4*>(all.activated + place) = make_uint4(
            pack(value[0], value[1]), pack(value[2], value[3]), pack(value[4], value[5]), pack(value[6], value[7]));
      }
    }
  }
}

__device__ __forceinline__ void multiply_tiles(const TwoLayers& all, Ring stage) {
  const int half = threadIdx.x / 128 - 1, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  for (int number = blockIdx.x; number < all.tiles; number += gridDim.x) {
    float sums[tile_blocks][64];
    multiply_stages<0, false>(sums, stage, all.steps, half, lane);
    const int row = number / all.column_tiles * tile_rows + half * 64 + warp * 16 + (lane >> 2);
    const int first = number % all.column_tiles * tile_blocks;
#pragma unroll
    for (int i = 0; i < tile_blocks; ++i) finish(all, Block(all, first + i), sums[i], row, lane);
  }
}

#endif

__global__ void __launch_bounds__(ring_threads, 1) two_layers_kernel(const __grid_constant__ TwoLayers all) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  run_producer_consumer<Ring>(
      memory, [&](const Ring& stage) { load_tiles(all, stage); },
      [&](const Ring& stage) { multiply_tiles(all, stage); });
#endif
}

bool fits(const Context& ctx, const Tensor& x, const Param& first, const Param& bias, const Tensor& pre,
          const Tensor& y, const Param& second, const Tensor& other) {
  if (ctx.cuda->major != 9 || ctx.compute != DType::bf16 || x.dim(1) % 8 != 0 || pre.dim(1) % 8 != 0 ||
      other.dim(1) % 8 != 0)
    return false;
  for (const Tensor* const one : {&x, &first.compute, &pre, &y, &second.compute, &other})
    if (one->dtype() != DType::bf16 || !aligned16(one->raw())) return false;
  return !bias || (bias.compute.dtype() == DType::bf16 && aligned16(bias.compute.raw()));
}

}  // namespace

void linear_two_forward(Context& ctx, const Tensor& x, const Param& first, const Param& bias, Tensor& pre, Tensor& y,
                        const Param& second, Tensor& other) {
  if (x.dim(0) == 0) return;
  if (row_products(ctx) != nullptr || !fits(ctx, x, first, bias, pre, y, second, other)) {
    cuda::linear_gelu_forward(ctx, x, first, bias, pre, y);
    return cuda::linear_forward(ctx, x, second, Param(), other);
  }
  TwoLayers all{};
  const std::int64_t depth = x.dim(1);
  all.rows = static_cast<int>(x.dim(0));
  all.steps = static_cast<int>((depth + block_depth - 1) / block_depth);
  all.columns[0] = static_cast<int>(pre.dim(1));
  all.columns[1] = static_cast<int>(other.dim(1));
  all.x = describe(x.raw(), depth, all.rows, 1, tile_rows);
  all.weight[0] = describe(first.compute.raw(), depth, all.columns[0], 1, block_columns);
  all.weight[1] = describe(second.compute.raw(), depth, all.columns[1], 1, block_columns);
  all.bias = bias ? elements_of<bf16>(bias.compute) : nullptr;
  all.result[0] = elements_of<bf16>(pre);
  all.result[1] = elements_of<bf16>(other);
  all.activated = elements_of<bf16>(y);
  const auto blocks = [](int columns) { return (columns + block_columns - 1) / block_columns; };
  all.first_blocks = blocks(all.columns[0]);
  all.column_tiles = (all.first_blocks + blocks(all.columns[1]) + tile_blocks - 1) / tile_blocks;
  all.tiles = (all.rows + tile_rows - 1) / tile_rows * all.column_tiles;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(two_layers_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  launch_dependent(ctx, two_layers_kernel, static_cast<unsigned>(std::min(all.tiles, ctx.cuda->multiprocessors)),
                   ring_threads, shared_bytes, all);
}

}  // namespace some::cuda
