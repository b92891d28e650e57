// Causal depthwise convolution on the GPU. For each token, forward reads n + 1 rows of d numbers and writes one;
// neighboring tokens read the same rows, so most reads hit the cache. With few taps, the backward pass reads dy, x and
// dx and writes dx, each once (in bf16, 8 bytes per element): a warp goes through adjacent tokens and keeps the last
// rows of dy in registers. The gradient of the taps is summed in two stages, in a fixed order.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/reduce/column_sums.h"
#include "ops/conv.h"

namespace some::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_size;

// WIDTH elements as they are stored.
template <typename T, int WIDTH>
struct Loaded {
  uint4 word;
  Loaded() = default;
  __device__ explicit Loaded(const T* source) : word(*reinterpret_cast<const uint4*>(source)) {}
  __device__ void unpack(float (&values)[WIDTH]) const { unpack16<T>(word, values); }
};
template <typename T>
struct Loaded<T, 1> {
  T word;
  Loaded() = default;
  __device__ explicit Loaded(const T* source) : word(*source) {}
  __device__ void unpack(float (&values)[1]) const { values[0] = to_f32(word); }
};

__global__ void __launch_bounds__(threads)
    past_rows_kernel(const std::int32_t* positions, std::int64_t count, int width, std::int32_t* rows) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (index >= count) return;
  const std::int64_t t = index / width;
  const int j = static_cast<int>(index % width);
  rows[index] = positions[t] >= j ? static_cast<std::int32_t>(t - j) : -1;
}

// Each thread handles WIDTH adjacent columns of one token, with TAPS taps, all of which are loaded at once.
template <typename T, int WIDTH, int TAPS>
__global__ void __launch_bounds__(threads) forward_taps_kernel(const T* x, const std::int32_t* rows, const float* taps,
                                                               std::int64_t tokens, int width, int d, T* y) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int pieces = d / WIDTH;
  if (index >= tokens * pieces) return;
  const std::int64_t t = index / pieces;
  const int column = static_cast<int>(index % pieces) * WIDTH;
  const std::int32_t* const row = rows + t * width;
  std::int64_t source[TAPS + 1];
#pragma unroll
  for (int j = 0; j <= TAPS; ++j) source[j] = row[j];
  float sum[WIDTH], values[TAPS][WIDTH];
  load_elements<WIDTH>(x + source[0] * d + column, sum);
#pragma unroll
  for (int j = 0; j < TAPS; ++j) {
    const bool exists = source[j + 1] >= 0;
    load_elements<WIDTH>(x + (exists ? source[j + 1] : source[0]) * d + column, values[j]);
    if (exists) continue;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) values[j][i] = 0.0f;
  }
#pragma unroll
  for (int j = 0; j < TAPS; ++j) {
    float factors[WIDTH];
    load_elements<WIDTH>(taps + static_cast<std::int64_t>(j) * d + column, factors);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum[i] = fmaf(factors[i], values[j][i], sum[i]);
  }
  store_elements<WIDTH>(y + t * d + column, sum);
}

// The same for any number of taps.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads) forward_kernel(const T* x, const std::int32_t* rows, const float* taps,
                                                          std::int64_t tokens, int width, int count, int d, T* y) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int pieces = d / WIDTH;
  if (index >= tokens * pieces) return;
  const std::int64_t t = index / pieces;
  const int column = static_cast<int>(index % pieces) * WIDTH;
  const std::int32_t* const row = rows + t * width;
  float sum[WIDTH];
  load_elements<WIDTH>(x + static_cast<std::int64_t>(row[0]) * d + column, sum);
  for (int j = 1; j <= count; ++j) {
    const std::int64_t before = row[j];
    if (before < 0) continue;
    float values[WIDTH], factors[WIDTH];
    load_elements<WIDTH>(x + before * d + column, values);
    load_elements<WIDTH>(taps + static_cast<std::int64_t>(j - 1) * d + column, factors);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum[i] = fmaf(factors[i], values[i], sum[i]);
  }
  store_elements<WIDTH>(y + t * d + column, sum);
}

template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads) backward_kernel(const T* dy, const std::int32_t* rows, const float* taps,
                                                           std::int64_t tokens, int width, int count, int d, T* dx) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int pieces = d / WIDTH;
  if (index >= tokens * pieces) return;
  const std::int64_t t = index / pieces;
  const int column = static_cast<int>(index % pieces) * WIDTH;
  float sum[WIDTH], values[WIDTH];
  load_elements<WIDTH>(dx + t * d + column, sum);
  load_elements<WIDTH>(dy + t * d + column, values);
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) sum[i] += values[i];
  for (int j = 1; j <= count; ++j) {
    const std::int64_t later = t + j;
    if (later >= tokens || rows[later * width + j] != t) continue;
    float factors[WIDTH];
    load_elements<WIDTH>(dy + later * d + column, values);
    load_elements<WIDTH>(taps + static_cast<std::int64_t>(j - 1) * d + column, factors);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum[i] = fmaf(factors[i], values[i], sum[i]);
  }
  store_elements<WIDTH>(dx + t * d + column, sum);
}

// Computes partial sums of the taps' gradients: block (x, y, z) sums the rows of chunk y for tap z, in the 32*WIDTH
// columns starting at x*32*WIDTH; each warp takes every eighth row. partials: [chunks, n * d].
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    taps_kernel(const T* dy, const T* x, const std::int32_t* rows, std::int64_t tokens, int width, int d,
                std::int64_t rows_per_chunk, float* partials) {
  wait_previous_kernel();
  constexpr int block_columns = warp_size * WIDTH;
  __shared__ float shared[warps][block_columns + 1];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const int first = static_cast<int>(blockIdx.x) * block_columns, column = first + lane * WIDTH;
  const int tap = static_cast<int>(blockIdx.z);
  const std::int64_t begin = blockIdx.y * rows_per_chunk, end = min(tokens, begin + rows_per_chunk);
  float sum[WIDTH] = {};
  if (column < d) {
    for (std::int64_t t = begin + warp; t < end; t += warps) {
      const std::int64_t before = rows[t * width + tap + 1];
      if (before < 0) continue;
      float upstream[WIDTH], values[WIDTH];
      load_elements<WIDTH>(dy + t * d + column, upstream);
      load_elements<WIDTH>(x + before * d + column, values);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) sum[i] = fmaf(upstream[i], values[i], sum[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) shared[warp][lane * WIDTH + i] = sum[i];
  __syncthreads();
  const int here = min(block_columns, d - first);
  float* const target = partials + (static_cast<std::int64_t>(blockIdx.y) * gridDim.z + tap) * d + first;
  for (int c = static_cast<int>(threadIdx.x); c < here; c += threads) {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += shared[w][c];
    target[c] = total;
  }
}

// Both gradients for TAPS taps. Block (x, y) handles the 32*WIDTH columns starting at x*32*WIDTH of `share` tokens per
// warp. partials: [blocks y, TAPS * d], the parts of the taps' gradients; null: not needed.
template <typename T, int WIDTH, int TAPS>
__global__ void __launch_bounds__(threads)
    backward_taps_kernel(const T* dy, const T* x, const std::int32_t* rows, const float* taps, std::int64_t tokens,
                         int width, int d, int share, T* dx, float* partials) {
  wait_previous_kernel();
  constexpr int block_columns = warp_size * WIDTH;
  __shared__ float shared[warps][block_columns + 1];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const int first = static_cast<int>(blockIdx.x) * block_columns, column = first + lane * WIDTH;
  const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.y) * warps + warp) * share,
                     end = min(tokens, begin + share);
  float sums[TAPS][WIDTH] = {};
  if (column < d) {
    using Word = Loaded<T, WIDTH>;
    float factors[TAPS][WIDTH];
#pragma unroll
    for (int j = 0; j < TAPS; ++j) load_elements<WIDTH>(taps + static_cast<std::int64_t>(j) * d + column, factors[j]);
    const auto row_of = [&](const T* matrix, std::int64_t t) { return Word(matrix + min(t, tokens - 1) * d + column); };
    // dy of the current token and of those after it; and of the next token what the loop needs, loaded one step ahead.
    Word window[TAPS + 1] = {}, next_x{}, next_dx{};
    int reads[TAPS];  // row that token t + j reads with tap j
    const auto fetch = [&](std::int64_t t) {
      window[TAPS] = row_of(dy, t + TAPS);
      next_x = row_of(x, t);
      next_dx = row_of(dx, t);
#pragma unroll
      for (int j = 1; j <= TAPS; ++j) reads[j - 1] = t + j < tokens ? rows[(t + j) * width + j] : -1;
    };
    if (begin < end) {
#pragma unroll
      for (int j = 0; j < TAPS; ++j) window[j] = row_of(dy, begin + j);
      fetch(begin);
    }
    for (std::int64_t t = begin; t < end; ++t) {
      float own[WIDTH], target[WIDTH], up[TAPS][WIDTH];
      bool read[TAPS];
      window[0].unpack(target);
      next_dx.unpack(own);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) target[i] += own[i];
      next_x.unpack(own);
#pragma unroll
      for (int j = 0; j < TAPS; ++j) {
        window[j + 1].unpack(up[j]);
        read[j] = reads[j] == t;
      }
#pragma unroll
      for (int j = 0; j < TAPS; ++j) window[j] = window[j + 1];
      if (t + 1 < end) fetch(t + 1);
#pragma unroll
      for (int j = 0; j < TAPS; ++j) {
        if (!read[j]) continue;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
          target[i] = fmaf(factors[j][i], up[j][i], target[i]);
          sums[j][i] = fmaf(up[j][i], own[i], sums[j][i]);
        }
      }
      store_elements<WIDTH>(dx + t * d + column, target);
    }
  }
  if (partials == nullptr) return;
  const int here = min(block_columns, d - first);
#pragma unroll
  for (int j = 0; j < TAPS; ++j) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) shared[warp][lane * WIDTH + i] = sums[j][i];
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < here; c += threads) {
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < warps; ++w) total += shared[w][c];
      partials[(static_cast<std::int64_t>(blockIdx.y) * TAPS + j) * d + first + c] = total;
    }
  }
}

template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    scatter_kernel(const T* x, const std::int32_t* rows, std::int64_t count, int d, T* y) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int pieces = d / WIDTH;
  if (index >= count * pieces) return;
  const std::int64_t i = index / pieces;
  const int column = static_cast<int>(index % pieces) * WIDTH;
  float values[WIDTH];
  load_elements<WIDTH>(x + i * d + column, values);
  store_elements<WIDTH>(y + static_cast<std::int64_t>(rows[i]) * d + column, values);
}

// Calls function.operator()<T, WIDTH>(). WIDTH is 16 bytes if sizes and addresses allow it, and 1 otherwise.
template <typename Function>
void by_width(DType type, std::int64_t d, bool aligned, Function&& function) {
  with_real_type(type, "looking back", [&](auto zero) {
    using T = decltype(zero);
    if (aligned && d % vector_width<T> == 0)
      function.template operator()<T, vector_width<T>>();
    else
      function.template operator()<T, 1>();
  });
}

// Calls function.operator()<TAPS>() for few taps. Returns false otherwise.
template <typename Function>
bool by_taps(int count, Function&& function) {
  switch (count) {
    case 1: return function.template operator()<1>(), true;
    case 2: return function.template operator()<2>(), true;
    case 3: return function.template operator()<3>(), true;
    case 4: return function.template operator()<4>(), true;
    default: return false;
  }
}

}  // namespace

void conv_rows(Context& ctx, const Tensor& positions, Tensor& rows) {
  const std::int64_t count = rows.elements();
  if (count == 0) return;
  launch_dependent(ctx, past_rows_kernel, grid_for(count, threads), threads, 0, ints(positions), count,
                   static_cast<int>(rows.dim(1)), ints(rows));
}

void conv_forward(Context& ctx, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& y) {
  const std::int64_t tokens = rows.dim(0), d = x.dim(1);
  const int width = static_cast<int>(rows.dim(1)), count = static_cast<int>(taps.value.dim(0)),
            size = static_cast<int>(d);
  if (tokens == 0) return;
  by_width(x.dtype(), d, all_aligned16(x.raw(), taps.value.raw(), y.raw()), [&]<typename T, int WIDTH>() {
    const unsigned blocks = grid_for(tokens * (d / WIDTH), threads);
    const bool few = by_taps(count, [&]<int TAPS>() {
      launch_dependent(ctx, forward_taps_kernel<T, WIDTH, TAPS>, blocks, threads, 0, elements_of<T>(x), ints(rows),
                       floats(taps.value), tokens, width, size, elements_of<T>(y));
    });
    if (few) return;
    launch_dependent(ctx, forward_kernel<T, WIDTH>, blocks, threads, 0, elements_of<T>(x), ints(rows),
                     floats(taps.value), tokens, width, count, size, elements_of<T>(y));
  });
}

void conv_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& dx) {
  const std::int64_t tokens = rows.dim(0), d = x.dim(1);
  const int width = static_cast<int>(rows.dim(1)), count = static_cast<int>(taps.value.dim(0)),
            size = static_cast<int>(d);
  if (tokens == 0) return;
  const bool aligned = all_aligned16(dy.raw(), x.raw(), taps.value.raw(), dx.raw());
  by_width(x.dtype(), d, aligned, [&]<typename T, int WIDTH>() {
    const unsigned column_blocks = grid_for(d, warp_size * WIDTH);
    const ArenaScope scope(*ctx.arena);
    const bool few = by_taps(count, [&]<int TAPS>() {
      // Two blocks per multiprocessor, but at least 4 tokens per warp, which spares reading dy again.
      const std::int64_t wanted = std::max<std::int64_t>(1, 2 * ctx.cuda->multiprocessors / column_blocks);
      const auto share = static_cast<int>(std::max<std::int64_t>(4, grid_for(tokens, wanted * warps)));
      const auto chunks = static_cast<int>(grid_for(tokens, std::int64_t{warps} * share));
      float* const partials = taps.grad ? partial_sums_buffer(ctx, chunks * taps.grad.elements()) : nullptr;
      launch_dependent(ctx, backward_taps_kernel<T, WIDTH, TAPS>, dim3(column_blocks, static_cast<unsigned>(chunks)),
                       threads, 0, elements_of<T>(dy), elements_of<T>(x), ints(rows), floats(taps.value), tokens, width,
                       size, share, elements_of<T>(dx), partials);
      if (taps.grad) add_partials(ctx, partials, chunks, taps.grad.elements(), floats(taps.grad));
    });
    if (few) return;
    launch_dependent(ctx, backward_kernel<T, WIDTH>, grid_for(tokens * (d / WIDTH), threads), threads, 0,
                     elements_of<T>(dy), ints(rows), floats(taps.value), tokens, width, count, size,
                     elements_of<T>(dx));
    if (!taps.grad) return;
    const std::int64_t per_chunk = std::max<std::int64_t>(64, (tokens + 63) / 64);
    const int chunks = static_cast<int>(grid_for(tokens, per_chunk));
    float* const partials = partial_sums_buffer(ctx, chunks * taps.grad.elements());
    launch_dependent(ctx, taps_kernel<T, WIDTH>,
                     dim3(column_blocks, static_cast<unsigned>(chunks), static_cast<unsigned>(count)), threads, 0,
                     elements_of<T>(dy), elements_of<T>(x), ints(rows), tokens, width, size, per_chunk, partials);
    add_partials(ctx, partials, chunks, taps.grad.elements(), floats(taps.grad));
  });
}

void scatter_rows(Context& ctx, const Tensor& x, const Tensor& rows, Tensor& y) {
  const std::int64_t count = x.dim(0), d = x.dim(1);
  if (count == 0) return;
  by_width(x.dtype(), d, all_aligned16(x.raw(), y.raw()), [&]<typename T, int WIDTH>() {
    launch_dependent(ctx, scatter_kernel<T, WIDTH>, grid_for(count * (d / WIDTH), threads), threads, 0,
                     elements_of<T>(x), ints(rows), count, static_cast<int>(d), elements_of<T>(y));
  });
}

}  // namespace some::cuda
