// Causal depthwise convolution on the GPU. For each token, forward reads n + 1 rows of d numbers and writes one;
// neighboring tokens read the same rows, so most reads hit the cache. The gradient of the taps is summed in two stages,
// in a fixed order.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/reduce/column_sums.h"
#include "ops/conv.h"

namespace some::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_size;

__global__ void __launch_bounds__(threads)
    past_rows_kernel(const std::int32_t* positions, std::int64_t count, int width, std::int32_t* rows) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (index >= count) return;
  const std::int64_t t = index / width;
  const int j = static_cast<int>(index % width);
  rows[index] = positions[t] >= j ? static_cast<std::int32_t>(t - j) : -1;
}

// Each thread handles WIDTH adjacent columns of one token.
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

}  // namespace

void conv_rows(Context& ctx, const Tensor& positions, Tensor& rows) {
  const std::int64_t count = rows.elements();
  if (count == 0) return;
  launch_dependent(ctx, past_rows_kernel, grid_for(count, threads), threads, 0, ints(positions), count,
                   static_cast<int>(rows.dim(1)), ints(rows));
}

void conv_forward(Context& ctx, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& y) {
  const std::int64_t tokens = rows.dim(0), d = x.dim(1);
  if (tokens == 0) return;
  by_width(x.dtype(), d, all_aligned16(x.raw(), taps.value.raw(), y.raw()), [&]<typename T, int WIDTH>() {
    launch_dependent(ctx, forward_kernel<T, WIDTH>, grid_for(tokens * (d / WIDTH), threads), threads, 0,
                     elements_of<T>(x), ints(rows), floats(taps.value), tokens, static_cast<int>(rows.dim(1)),
                     static_cast<int>(taps.value.dim(0)), static_cast<int>(d), elements_of<T>(y));
  });
}

void conv_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& dx) {
  const std::int64_t tokens = rows.dim(0), d = x.dim(1);
  const int width = static_cast<int>(rows.dim(1)), count = static_cast<int>(taps.value.dim(0)),
            size = static_cast<int>(d);
  if (tokens == 0) return;
  const bool aligned = all_aligned16(dy.raw(), x.raw(), taps.value.raw(), dx.raw());
  by_width(x.dtype(), d, aligned, [&]<typename T, int WIDTH>() {
    launch_dependent(ctx, backward_kernel<T, WIDTH>, grid_for(tokens * (d / WIDTH), threads), threads, 0,
                     elements_of<T>(dy), ints(rows), floats(taps.value), tokens, width, count, size,
                     elements_of<T>(dx));
    if (!taps.grad) return;
    const ArenaScope scope(*ctx.arena);
    const std::int64_t per_chunk = std::max<std::int64_t>(64, (tokens + 63) / 64);
    const int chunks = static_cast<int>(grid_for(tokens, per_chunk));
    float* const partials = partial_sums_buffer(ctx, chunks * taps.grad.elements());
    launch_dependent(ctx, taps_kernel<T, WIDTH>,
                     dim3(grid_for(d, warp_size * WIDTH), static_cast<unsigned>(chunks), static_cast<unsigned>(count)),
                     threads, 0, elements_of<T>(dy), elements_of<T>(x), ints(rows), tokens, width, size, per_chunk,
                     partials);
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
