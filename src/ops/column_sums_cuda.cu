// Bytes moved: the matrix once (and its bf16 copy once); the partial sums are a few per cent of it.
#include <algorithm>

#include "ops/column_sums.h"

namespace some::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_size;

// Block (x, y) sums rows [y*rows_per_chunk, ...) of the 32*WIDTH columns from x*32*WIDTH: warp w takes every eighth
// row.
template <typename T, int WIDTH, bool COPY>
__global__ void __launch_bounds__(threads)
    column_sums_kernel(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t rows_per_chunk,
                       float* partials, __nv_bfloat16* copy) {
  __shared__ float shared[warps][warp_size * WIDTH + 1];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * warp_size + lane) * WIDTH;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * rows_per_chunk;
  const std::int64_t end = min(rows, begin + rows_per_chunk);
  float sum[WIDTH] = {};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t row = begin + warp; row < end; row += warps) {
      float values[WIDTH];
      load_elements<WIDTH>(x + row * columns + column, values);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) sum[i] += values[i];
      if constexpr (COPY) store_elements<WIDTH>(copy + row * columns + column, values);
    }
  }
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) shared[warp][lane * WIDTH + i] = sum[i];
  __syncthreads();
  for (int c = threadIdx.x; c < warp_size * WIDTH; c += threads) {
    const std::int64_t target = static_cast<std::int64_t>(blockIdx.x) * warp_size * WIDTH + c;
    if (target >= columns) continue;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += shared[w][c];
    partials[blockIdx.y * columns + target] = total;
  }
}

__global__ void __launch_bounds__(threads) add_partials_kernel(const float* partials, int chunks, std::int64_t columns,
                                                               float* target, std::int64_t split, float* second) {
  __shared__ float shared[warps][warp_size];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp_size + lane;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 4
    for (int chunk = warp; chunk < chunks; chunk += warps) sum += partials[chunk * columns + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < warps; ++w) total += shared[w][lane];
  if (column < split) {
    if (target != nullptr) target[column] += total;
  } else if (second != nullptr) {
    second[column - split] += total;
  }
}

template <int WIDTH>
__global__ void __launch_bounds__(threads)
    convert_to_bf16_kernel(const float* x, __nv_bfloat16* y, std::int64_t vectors) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= vectors) return;
  float values[WIDTH];
  load_elements<WIDTH>(x + i * WIDTH, values);
  store_elements<WIDTH>(y + i * WIDTH, values);
}

}  // namespace

void add_partials(Context& ctx, const float* partials, int chunks, std::int64_t columns, float* target,
                  std::int64_t split, float* second) {
  if (columns == 0) return;
  add_partials_kernel<<<grid_for(columns, warp_size), threads, 0, ctx.cuda->stream>>>(
      partials, chunks, columns, target, split < 0 ? columns : split, second);
  SOME_CUDA_LAUNCHED();
}

void add_column_sums(Context& ctx, const void* x, DType type, std::int64_t rows, std::int64_t columns, float* target,
                     __nv_bfloat16* copy) {
  if (rows == 0 || columns == 0) return;
  with_real_type(type, "a sum over rows", [&](auto tag) {
    using T = decltype(tag);
    constexpr int width = vector_width<T>;
    const bool vectors = columns % 8 == 0 && aligned16(x) && aligned16(copy);
    const int column_blocks = grid_for(columns, warp_size * (vectors ? width : 1));
    // About four blocks a multiprocessor of the largest GPUs, but no fewer than 64 rows a block.
    const std::int64_t chunks = std::clamp<std::int64_t>(528 / column_blocks, 1, (rows + 63) / 64);
    const std::int64_t rows_per_chunk = (rows + chunks - 1) / chunks;
    const int used = grid_for(rows, rows_per_chunk);
    const ArenaScope scope(*ctx.arena);
    float* partials = floats(ctx.scratch({used, columns}, DType::f32));
    const dim3 grid(column_blocks, used);
    const T* source = static_cast<const T*>(x);
    const auto launch = [&](auto kernel) {
      kernel<<<grid, threads, 0, ctx.cuda->stream>>>(source, rows, columns, rows_per_chunk, partials, copy);
      SOME_CUDA_LAUNCHED();
    };
    if (vectors) {
      copy != nullptr ? launch(column_sums_kernel<T, width, true>) : launch(column_sums_kernel<T, width, false>);
    } else {
      copy != nullptr ? launch(column_sums_kernel<T, 1, true>) : launch(column_sums_kernel<T, 1, false>);
    }
    add_partials(ctx, partials, used, columns, target);
  });
}

void convert_to_bf16(Context& ctx, const float* x, __nv_bfloat16* y, std::int64_t count) {
  if (count == 0) return;
  if (count % 8 == 0 && all_aligned16(x, y)) {
    convert_to_bf16_kernel<8><<<grid_for(count / 8, threads), threads, 0, ctx.cuda->stream>>>(x, y, count / 8);
  } else {
    convert_to_bf16_kernel<1><<<grid_for(count, threads), threads, 0, ctx.cuda->stream>>>(x, y, count);
  }
  SOME_CUDA_LAUNCHED();
}

}  // namespace some::cuda
