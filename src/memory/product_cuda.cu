// The product of queries and keys on the tensor cores, with the precision of fp32: a number of at most 1 is split into
// two of 11 bits each, and the three products of these that matter are added up. Either all scores are kept, or only
// the largest of each row; how many rows there are is then known on the device alone.
#include <cuda_fp16.h>

#include "memory/store_cuda.cuh"
#include "ops/cuda_primitives.cuh"

namespace some::memory::cuda {
namespace {

// A block multiplies 64 or 128 rows with 64 slots, each of its warps 32 of both. Tensor cores cut off the ends of what
// they add up, so they do it for product_depth columns only; these sums are added as all numbers are.
constexpr int product_slots = 64;
constexpr int product_stride = product_depth + 8;  // 8: the eight lines of a matrix lie in different banks
constexpr int product_threads(int rows) { return 2 * rows; }

// Numbers of at most 1. What is left of them is made larger, so that it does not get lost below the smallest half.
constexpr float low_scale = 2048.0f;
struct Split {
  __half2 high, low;
};
struct alignas(8) FourHalves {
  __half2 first, second;
};
__device__ __forceinline__ Split split(float first, float second) {
  const __half2 high = __floats2half2_rn(first, second);
  const float2 rounded = __half22float2(high);
  return {high, __floats2half2_rn((first - rounded.x) * low_scale, (second - rounded.y) * low_scale)};
}

template <int ROWS>
struct ProductStage {
  static constexpr int lines = ROWS + product_slots;  // of queries, and behind them of keys
  __half high[lines][product_stride], low[lines][product_stride];
};

// What is done with a product.
struct KeepAll {
  float* scores;  // [rows, slots]
};
struct KeepNearest {
  const std::int32_t* rows_used;
  const bool* closed;
  unsigned long long* nearest;
};

template <int ROWS, typename Keep>
__global__ void __launch_bounds__(product_threads(ROWS))
    product_kernel(const float* rows, const float* keys, int row_count, int slots, int d, Keep keep) {
  after_whole_previous();
  constexpr bool all = std::is_same_v<Keep, KeepAll>;
  constexpr int lines = ProductStage<ROWS>::lines, fours = product_depth / 4;
  constexpr int apart = product_threads(ROWS) / fours, brought = lines / apart;
  constexpr int high = 2;  // rows of a warp, in 16s
  static_assert(lines % apart == 0 && ROWS % apart == 0);
  const int first_row = static_cast<int>(blockIdx.y) * ROWS, first_slot = static_cast<int>(blockIdx.x) * product_slots;
  if constexpr (!all) {
    if (first_row >= *keep.rows_used) return;
  }
  extern __shared__ __align__(16) unsigned char product_shared[];
  auto* const stages = reinterpret_cast<ProductStage<ROWS>*>(product_shared);
  const int thread = threadIdx.x, lane = thread % warp_size, warp = thread / warp_size;
  // A thread brings four columns of several lines, and splits them on their way.
  const int own_line = thread / fours, column = thread % fours * 4;
  const float* from[brought];
#pragma unroll
  for (int i = 0; i < brought; ++i) {
    const int line = own_line + i * apart;
    from[i] = column + (line < ROWS ? rows + static_cast<std::int64_t>(min(first_row + line, row_count - 1)) * d
                                    : keys + static_cast<std::int64_t>(min(first_slot + line - ROWS, slots - 1)) * d);
  }
  float4 next[brought];
  const auto fetch = [&](int at) {
#pragma unroll
    for (int i = 0; i < brought; ++i) next[i] = *reinterpret_cast<const float4*>(from[i] + at);
  };
  const auto put = [&](ProductStage<ROWS>& stage) {
#pragma unroll
    for (int i = 0; i < brought; ++i) {
      const int line = own_line + i * apart;
      const Split first = split(next[i].x, next[i].y), second = split(next[i].z, next[i].w);
      *reinterpret_cast<FourHalves*>(stage.high[line] + column) = {first.high, second.high};
      *reinterpret_cast<FourHalves*>(stage.low[line] + column) = {first.low, second.low};
    }
  };
  const int warp_row = warp / 2 * 32, warp_slot = warp % 2 * 32, quarter = lane % 4;
  float sums[high][4][4] = {}, low_sums[high][4][4] = {};
  const auto multiply = [&](const ProductStage<ROWS>& stage) {
    float some[high][4][4] = {};
#pragma unroll
    for (int c = 0; c < product_depth; c += 16) {
      std::uint32_t row_high[high][4], row_low[high][4], key_high[2][4], key_low[2][4];
#pragma unroll
      for (int h = 0; h < high; ++h) {
        const int line = warp_row + 16 * h + lane % 16, at = c + lane / 16 * 8;
        load_matrices(row_high[h], shared_address(stage.high[line] + at));
        load_matrices(row_low[h], shared_address(stage.low[line] + at));
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {  // 16 slots: the two matrices of the first eight, then those of the others
        const int line = ROWS + warp_slot + 16 * n + lane / 16 * 8 + lane % 8, at = c + lane / 8 % 2 * 8;
        load_matrices(key_high[n], shared_address(stage.high[line] + at));
        load_matrices(key_low[n], shared_address(stage.low[line] + at));
      }
      // Eight products that do not wait for one another, three times.
      const auto each = [&](auto& to, const auto& row, const auto& key) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int h = 0; h < high; ++h)
            multiply_add_half(to[h][n], row[h], key[n / 2][n % 2 * 2], key[n / 2][n % 2 * 2 + 1]);
        }
      };
      each(some, row_high, key_high);
      each(low_sums, row_low, key_high);
      each(low_sums, row_high, key_low);
    }
#pragma unroll
    for (int h = 0; h < high; ++h) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[h][n][i] += some[h][n][i];
      }
    }
  };
  fetch(0);
  put(stages[0]);
  __syncthreads();
  int now = 0;
  for (int at = product_depth; at <= d; at += product_depth, now ^= 1) {
    if (at < d) fetch(at);
    multiply(stages[now]);
    if (at < d) put(stages[now ^ 1]);
    __syncthreads();
  }
  const int own_row = first_row + warp_row + lane / 4, own_slot = first_slot + warp_slot + 2 * quarter;
#pragma unroll
  for (int h = 0; h < high; ++h) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own_row + 16 * h + 8 * half;
      unsigned long long best = 0;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int slot = own_slot + 8 * n + i;
          const float score = fmaf(low_sums[h][n][2 * half + i], 1.0f / low_scale, sums[h][n][2 * half + i]);
          if constexpr (all) {
            if (row < row_count && slot < slots) keep.scores[static_cast<std::int64_t>(row) * slots + slot] = score;
          } else if (slot < slots && !keep.closed[slot]) {
            best = max(best, packed(Near{score, slot}));
          }
        }
      }
      if constexpr (!all) {
#pragma unroll
        for (int offset = 2; offset > 0; offset /= 2) best = max(best, __shfl_xor_sync(full_warp, best, offset));
        if (quarter == 0 && row < row_count && best != 0) atomicMax(keep.nearest + row, best);
      }
    }
  }
}

template <int ROWS, typename Keep>
void launch_product(Context& ctx, const float* rows, std::int64_t row_count, const float* keys, std::int64_t slots,
                    std::int64_t d, const Keep& keep) {
  auto* const kernel = product_kernel<ROWS, Keep>;
  constexpr int shared = 2 * sizeof(ProductStage<ROWS>);
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  launch_behind(ctx, kernel, dim3(grid_for(slots, product_slots), grid_for(row_count, ROWS)),
                dim3(product_threads(ROWS)), shared, rows, keys, static_cast<int>(row_count), static_cast<int>(slots),
                static_cast<int>(d), keep);
}

}  // namespace

void score(Context& ctx, const Store& store, const float* queries, std::int64_t rows, std::int64_t first,
           std::int64_t last, float* scores) {
  const std::int64_t d = store.keys.dim(1), slots = last - first;
  const float* keys = floats(store.keys) + first * d;
  if (d % product_depth != 0)
    return matmul(ctx, rows, slots, d, {queries, DType::f32, false}, {keys, DType::f32, true}, scores, DType::f32,
                  false);
  launch_product<128>(ctx, queries, rows, keys, slots, d, KeepAll{scores});
}

// Of a window's rows about half are left, so that more of them in a block would not all be used.
void find_nearest(Context& ctx, const Store& store, const float* queries, std::int64_t rows,
                  const std::int32_t* rows_used, const bool* closed, unsigned long long* nearest) {
  launch_product<64>(ctx, queries, rows, floats(store.keys), store.reach, store.keys.dim(1),
                     KeepNearest{rows_used, closed, nearest});
}

}  // namespace some::memory::cuda
