// The product of rows and keys on the tensor cores, with the precision of fp32: a number of at most 1 is split into two
// of 11 bits each, and the three products of these that matter are added up. A block multiplies some rows with 64
// slots, and keeps the scores in its registers. It is a small product that other work waits for: what counts is how
// many warps there are to wait for memory and for one another, and how far ahead they ask.
#pragma once

#include <cuda_fp16.h>

#include "memory/store_cuda.cuh"
#include "ops/cuda_primitives.cuh"

namespace some::memory::cuda {

constexpr int product_slots = 64;

// A warp has 16 rows and the slots of one of GROUPS groups. AHEAD: steps that numbers are asked for ahead, 1 or 2; each
// wants registers.
template <int ROWS, int GROUPS, int AHEAD>
struct Product {
  static constexpr int threads = ROWS / 16 * GROUPS * warp_size;
  static constexpr int eights = product_slots / GROUPS / 8;  // slots of a warp, in eights
  static constexpr int lines = ROWS + product_slots;         // of rows, and behind them of keys
  // A stage has twice the columns that tensor cores add up (product_depth: they cut off the ends of their sums, so
  // these are added as all numbers are): half as many steps, and twice the bytes on their way meanwhile.
  static constexpr int columns = 2 * product_depth;
  static constexpr int stride = columns + 8;  // 8: the eight lines of a matrix lie in different banks
  struct Stage {
    __half high[lines][stride], low[lines][stride];
  };
  static constexpr int shared_bytes = 2 * sizeof(Stage);

  // Of the scores that a thread has, [n][2 * half + i] belongs to this row and this slot of the block.
  __device__ static int row_of(int half) {
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    return warp / GROUPS * 16 + 8 * half + lane / 4;
  }
  __device__ static int slot_of(int n, int i) {
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    return warp % GROUPS * 8 * eights + 8 * n + 2 * (lane % 4) + i;
  }

  // row(i): where the i-th of row_count rows of d numbers is; keys [slots, d]. Scores of rows and slots that are none
  // are those of others. d is a multiple of 4. All threads must call it, and may use the shared memory again when it
  // returns.
  template <typename Row>
  __device__ static void multiply(unsigned char* shared, const Row& row, const float* keys, int first_row,
                                  int first_slot, int row_count, int slots, int d, float (&scores)[eights][4]) {
    constexpr int fours = columns / 4, apart = threads / fours, brought = lines / apart;
    static_assert(lines % apart == 0 && ROWS % apart == 0);
    auto* const stages = reinterpret_cast<Stage*>(shared);
    // A thread brings four columns of several lines, and splits them on their way.
    const int own_line = static_cast<int>(threadIdx.x) / fours, column = static_cast<int>(threadIdx.x) % fours * 4;
    const float* from[brought];
#pragma unroll
    for (int i = 0; i < brought; ++i) {
      const int line = own_line + i * apart;
      from[i] = column + (line < ROWS ? row(min(first_row + line, row_count - 1))
                                      : keys + static_cast<std::int64_t>(min(first_slot + line - ROWS, slots - 1)) * d);
    }
    float4 next[AHEAD][brought];
    const auto fetch = [&](float4(&to)[brought], int at) {
      const bool there = at + column < d;
#pragma unroll
      for (int i = 0; i < brought; ++i)
        to[i] = there ? *reinterpret_cast<const float4*>(from[i] + at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    };
    const auto put = [&](Stage& stage, const float4(&come)[brought]) {
#pragma unroll
      for (int i = 0; i < brought; ++i) {
        const int line = own_line + i * apart;
        const Split first = split(come[i].x, come[i].y), second = split(come[i].z, come[i].w);
        *reinterpret_cast<FourHalves*>(stage.high[line] + column) = {first.high, second.high};
        *reinterpret_cast<FourHalves*>(stage.low[line] + column) = {first.low, second.low};
      }
    };
    float sums[eights][4] = {}, low_sums[eights][4] = {};
    fetch(next[0], 0);
    if constexpr (AHEAD == 2) fetch(next[1], columns);
    put(stages[0], next[0]);
    __syncthreads();
    const auto step = [&](int at, int now, auto& asked, const auto& come) {
      if (at + AHEAD * columns < d) fetch(asked, at + AHEAD * columns);
      add(stages[now], sums, low_sums);
      if (at + columns < d) put(stages[1 - now], come);
      __syncthreads();
    };
    if constexpr (AHEAD == 1) {
      for (int at = 0, now = 0; at < d; at += columns, now = 1 - now) step(at, now, next[0], next[0]);
    } else {  // the registers take turns
      for (int at = 0; at < d; at += 2 * columns) {
        step(at, 0, next[0], next[1]);
        if (at + columns < d) step(at + columns, 1, next[1], next[0]);
      }
    }
#pragma unroll
    for (int n = 0; n < eights; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = fmaf(low_sums[n][i], 1.0f / low_scale, sums[n][i]);
    }
  }

 private:
  // Numbers of at most 1. What is left of them is made larger, so that it does not get lost below the smallest half.
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
        load_matrices(row_high, shared_address(stage.high[row] + row_at));
        load_matrices(row_low, shared_address(stage.low[row] + row_at));
        // 16 slots: the two matrices of the first eight, then those of the others.
#pragma unroll
        for (int n = 0; n < eights / 2; ++n) {
          const int line = ROWS + warp_slot + 16 * n + lane / 16 * 8 + lane % 8, at = c + lane / 8 % 2 * 8;
          load_matrices(key_high[n], shared_address(stage.high[line] + at));
          load_matrices(key_low[n], shared_address(stage.low[line] + at));
        }
        // Products that do not wait for one another, three times.
        const auto each = [](auto& to, const auto& row, const auto& key) {
#pragma unroll
          for (int n = 0; n < eights; ++n)
            multiply_add_half(to[n], row, key[n / 2][n % 2 * 2], key[n / 2][n % 2 * 2 + 1]);
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

// Rows that lie one behind the other.
struct RowsOf {
  const float* first;
  int d;
  __device__ const float* operator()(int i) const { return first + static_cast<std::int64_t>(i) * d; }
};

// Whether a block of this GPU has room for a product, and so much shared memory behind it. Small GPUs have less than
// the products of many rows want.
template <typename Tile>
bool fits(const Context& ctx, int more_shared = 0) {
  return Tile::shared_bytes + more_shared <= ctx.cuda->most_shared;
}

// A kernel that makes a product, and wants so much shared memory behind that of the product.
template <typename Tile, typename Kernel, typename... Arguments>
void launch_product(Context& ctx, Kernel* kernel, dim3 blocks, int more_shared, Arguments&&... arguments) {
  const int shared = Tile::shared_bytes + more_shared;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  launch_behind(ctx, kernel, blocks, dim3(Tile::threads), static_cast<std::size_t>(shared),
                std::forward<Arguments>(arguments)...);
}

}  // namespace some::memory::cuda
