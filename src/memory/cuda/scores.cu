// Multiplies rows and all keys with fp32 precision on the tensor cores: each number of at most 1 is split into two
// numbers of 11 bits, and the three significant products of these are added. Numbers are split while they are loaded;
// operands of many products can be split in advance (memory/cuda/split_keys.cuh).
#include "memory/cuda/split_keys.cuh"

namespace some::cuda {
namespace {

constexpr int product_depth = 32;  // columns per accumulation on the tensor cores

// A block multiplies ROWS rows with 64 slots and keeps the scores in registers; a warp has 16 rows and the slots of one
// of GROUPS groups.
template <int ROWS, int GROUPS>
struct Product {
  static constexpr int threads = ROWS / 16 * GROUPS * warp_size;
  static constexpr int eights = product_slots / GROUPS / 8;  // slots per warp, in groups of eight
  static constexpr int lines = ROWS + product_slots;         // rows, followed by keys
  // A stage has twice the columns of one tensor core accumulation (product_depth; tensor cores truncate their sums, so
  // these are added with ordinary fp32 additions). This halves the number of steps and doubles the bytes in flight.
  static constexpr int columns = 2 * product_depth;
  static constexpr int stride = columns + 8;  // + 8: the eight lines of a matrix are in different banks
  struct Stage {
    __half high[lines][stride], low[lines][stride];
  };
  static constexpr int shared_bytes = 2 * sizeof(Stage);

  // Row and slot, within the block, of the thread's score [n][2 * half + i].
  __device__ static int row_of(int half) {
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    return warp / GROUPS * 16 + 8 * half + lane / 4;
  }
  __device__ static int slot_of(int n, int i) {
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    return warp % GROUPS * 8 * eights + 8 * n + 2 * (lane % 4) + i;
  }

  // Multiplies rows [row_count, d] with keys [slots, d]; scores of rows and slots beyond the end are undefined. d must
  // be a multiple of 4. All threads must call it, and may reuse the shared memory when it returns.
  __device__ static void multiply(unsigned char* shared, const float* rows, const float* keys, int first_row,
                                  int first_slot, int row_count, int slots, int d, float (&scores)[eights][4]) {
    constexpr int fours = columns / 4, apart = threads / fours, brought = lines / apart;
    static_assert(lines % apart == 0 && ROWS % apart == 0);
    auto* const stages = reinterpret_cast<Stage*>(shared);
    // Each thread loads four columns of several lines and splits them.
    const int own_line = static_cast<int>(threadIdx.x) / fours, column = static_cast<int>(threadIdx.x) % fours * 4;
    const float* from[brought];
#pragma unroll
    for (int i = 0; i < brought; ++i) {
      const int line = own_line + i * apart;
      from[i] = column + (line < ROWS ? rows + static_cast<std::int64_t>(min(first_row + line, row_count - 1)) * d
                                      : keys + static_cast<std::int64_t>(min(first_slot + line - ROWS, slots - 1)) * d);
    }
    float4 next[brought];
    const auto fetch = [&](int at) {
      const bool there = at + column < d;
#pragma unroll
      for (int i = 0; i < brought; ++i)
        next[i] = there ? *reinterpret_cast<const float4*>(from[i] + at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    };
    const auto put = [&](Stage& stage) {
#pragma unroll
      for (int i = 0; i < brought; ++i) {
        const int line = own_line + i * apart;
        const Split first = split(next[i].x, next[i].y), second = split(next[i].z, next[i].w);
        *reinterpret_cast<FourHalves*>(stage.high[line] + column) = {first.high, second.high};
        *reinterpret_cast<FourHalves*>(stage.low[line] + column) = {first.low, second.low};
      }
    };
    float sums[eights][4] = {}, low_sums[eights][4] = {};
    fetch(0);
    put(stages[0]);
    __syncthreads();
    for (int at = 0, now = 0; at < d; at += columns, now = 1 - now) {
      if (at + columns < d) fetch(at + columns);
      add(stages[now], sums, low_sums);
      if (at + columns < d) put(stages[1 - now]);
      __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < eights; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = fmaf(low_sums[n][i], 1.0f / low_scale, sums[n][i]);
    }
  }

 private:
  // Splits numbers of at most 1. The remainder is scaled up, so that it does not underflow in fp16.
  static constexpr float low_scale = 2048.0f;
  struct Split {
    __half2 high, low;
  };
  struct alignas(8) FourHalves {
    __half2 first, second;
  };
  __device__ __forceinline__ static Split split(float first, float second) {
    const __half2 near = __floats2half2_rn(first, second);
    const float2 rounded = __half22float2(near);
    return {near, __floats2half2_rn((first - rounded.x) * low_scale, (second - rounded.y) * low_scale)};
  }

  __device__ __forceinline__ static void add(const Stage& stage, float (&sums)[eights][4],
                                             float (&low_sums)[eights][4]) {
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    const int warp_row = warp / GROUPS * 16, warp_slot = warp % GROUPS * 8 * eights;
#pragma unroll
    for (int begin = 0; begin < columns; begin += product_depth) {
      float some[eights][4] = {};
#pragma unroll
      for (int c = begin; c < begin + product_depth; c += 16) {
        std::uint32_t row_high[4], row_low[4], key_high[eights / 2][4], key_low[eights / 2][4];
        const int row = warp_row + lane % 16, row_at = c + lane / 16 * 8;
        ldmatrix_x4(row_high, shared_address(stage.high[row] + row_at));
        ldmatrix_x4(row_low, shared_address(stage.low[row] + row_at));
        // 16 slots: the two matrices of the first eight, then those of the second eight.
#pragma unroll
        for (int n = 0; n < eights / 2; ++n) {
          const int line = ROWS + warp_slot + 16 * n + lane / 16 * 8 + lane % 8, at = c + lane / 8 % 2 * 8;
          ldmatrix_x4(key_high[n], shared_address(stage.high[line] + at));
          ldmatrix_x4(key_low[n], shared_address(stage.low[line] + at));
        }
        // Independent products, three times.
        const auto each = [](auto& to, const auto& row, const auto& key) {
#pragma unroll
          for (int n = 0; n < eights; ++n) mma_fp16(to[n], row, key[n / 2][n % 2 * 2], key[n / 2][n % 2 * 2 + 1]);
        };
        each(some, row_high, key_high);
        each(low_sums, row_low, key_high);
        each(low_sums, row_high, key_low);
      }
#pragma unroll
      for (int n = 0; n < eights; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] += some[n][i];
      }
    }
  }
};

// Both tiles compute the same bits: the scores of a row have one order of additions.
using ScoresTile = Product<128, 2>;
constexpr int few_rows = 16;
using FewScoresTile = Product<few_rows, 4>;

template <int ROWS, typename Tile>
__global__ void __launch_bounds__(Tile::threads)
    scores_kernel(const float* rows, const float* keys, int row_count, int slots, int d, float* scores) {
  wait_previous_kernel_no_trigger();
  extern __shared__ __align__(16) unsigned char product_shared[];
  const int first_row = static_cast<int>(blockIdx.y) * ROWS, first_slot = static_cast<int>(blockIdx.x) * product_slots;
  float own[Tile::eights][4];
  Tile::multiply(product_shared, rows, keys, first_row, first_slot, row_count, slots, d, own);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + Tile::row_of(half);
    float* const to = scores + static_cast<std::int64_t>(row) * slots;
#pragma unroll
    for (int n = 0; n < Tile::eights; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int slot = first_slot + Tile::slot_of(n, i);
        if (row < row_count && slot < slots) to[slot] = own[n][2 * half + i];
      }
    }
  }
}

}  // namespace

void score(Context& ctx, const Store& store, const float* queries, std::int64_t rows, std::int64_t first,
           std::int64_t last, float* scores) {
  const std::int64_t d = store.keys.dim(1), slots = last - first;
  const float* keys = floats(store.keys) + first * d;
  if (d % product_depth != 0 || !fits(ctx, ScoresTile::shared_bytes))
    return matmul(ctx, rows, slots, d, {queries, DType::f32, false}, {keys, DType::f32, true}, scores, DType::f32,
                  false);
  const auto launch = [&]<int ROWS, typename Tile>(Tile) {
    launch_product(ctx, scores_kernel<ROWS, Tile>, dim3(grid_for(slots, product_slots), grid_for(rows, ROWS)),
                   Tile::threads, Tile::shared_bytes, queries, keys, static_cast<int>(rows), static_cast<int>(slots),
                   static_cast<int>(d), scores);
  };
  if (rows <= few_rows)
    launch.template operator()<few_rows>(FewScoresTile{});
  else
    launch.template operator()<128>(ScoresTile{});
}

}  // namespace some::cuda
