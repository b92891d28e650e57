// Residual sum and LayerNorm. Forward reads x and addend and writes sum and y, each once (in bf16, 8 bytes per
// element), with one warp per row and the row in registers. Backward reads dy and sum (and extra) and writes dsum; each
// warp keeps the column sums over its rows in registers, so that the parameter gradients need no second pass.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/reduce/column_sums.h"
#include "ops/norm.h"

namespace some::cuda {
namespace {

constexpr float epsilon = 1e-5f;
constexpr int threads = 256;
constexpr int warps = threads / warp_size;

// Packs the elements of a 16-byte word, rounding them.
template <typename T>
__device__ __forceinline__ uint4 pack16(const float (&values)[vector_width<T>]) {
  if constexpr (std::is_same_v<T, float>)
    return make_uint4(__float_as_uint(values[0]), __float_as_uint(values[1]), __float_as_uint(values[2]),
                      __float_as_uint(values[3]));
  else
    return make_uint4(pack(values[0], values[1]), pack(values[2], values[3]), pack(values[4], values[5]),
                      pack(values[6], values[7]));
}

// A lane holds PARTS groups of WIDTH columns; group p starts at column (p*32 + lane)*WIDTH. d is a multiple of WIDTH
// and at most PARTS*32*WIDTH. The row stays packed, because a multiprocessor then has room for 64 warps: with fewer,
// 6,700 rows would take a second round.
template <typename T, int PARTS, int WIDTH>
__global__ void __launch_bounds__(threads, PARTS <= 2 ? 2048 / threads : 1)
    norm_forward_kernel(const T* x, const T* addend, const float* weight, const float* bias, T* sum, T* y, float* means,
                        float* rstds, std::int64_t rows, int d) {
  wait_previous_kernel();
  const int lane = threadIdx.x % warp_size;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (row >= rows) return;
  const std::int64_t base = row * d;
  uint4 words[PARTS];
  const auto each = [&](auto&& take) {  // visits the parts that exist
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = (p * warp_size + lane) * WIDTH;
      if (column < d) take(p, column);
    }
  };
  each([&](int p, int column) { words[p] = *reinterpret_cast<const uint4*>(x + base + column); });
  if (addend != nullptr) {
    uint4 more[PARTS];
    each([&](int p, int column) { more[p] = *reinterpret_cast<const uint4*>(addend + base + column); });
    // Round first: the statistics must be those of the stored sum, which the backward pass reads.
    each([&](int p, int) {
      float values[WIDTH], others[WIDTH];
      unpack16<T>(words[p], values);
      unpack16<T>(more[p], others);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) values[i] += others[i];
      words[p] = pack16<T>(values);
    });
  }
  if (addend != nullptr || sum != x)
    each([&](int p, int column) { *reinterpret_cast<uint4*>(sum + base + column) = words[p]; });
  float total = 0.0f;
  each([&](int p, int) {
    float values[WIDTH];
    unpack16<T>(words[p], values);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) total += values[i];
  });
  const float mean = warp_sum(total) / static_cast<float>(d);
  float squares = 0.0f;
  each([&](int p, int) {
    float values[WIDTH];
    unpack16<T>(words[p], values);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) squares += (values[i] - mean) * (values[i] - mean);
  });
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(d) + epsilon);
  each([&](int p, int column) {
    float values[WIDTH], scale[WIDTH], shift[WIDTH];
    unpack16<T>(words[p], values);
    load_elements<WIDTH>(weight + column, scale);
    load_elements<WIDTH>(bias + column, shift);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) values[i] = (values[i] - mean) * rstd * scale[i] + shift[i];
    store_elements<WIDTH>(y + base + column, values);
  });
  if (lane == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
}

// Computes the same for any d, and rows that need not be aligned: the row is read again instead of being kept in
// registers.
template <typename T>
__global__ void __launch_bounds__(threads)
    norm_forward_any_kernel(const T* x, const T* addend, const float* weight, const float* bias, T* sum, T* y,
                            float* means, float* rstds, std::int64_t rows, int d) {
  wait_previous_kernel();
  const int lane = threadIdx.x % warp_size;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (row >= rows) return;
  T* stored = sum + row * d;
  float total = 0.0f;
  for (int c = lane; c < d; c += warp_size) {
    const float value = to_f32(x[row * d + c]) + (addend != nullptr ? to_f32(addend[row * d + c]) : 0.0f);
    stored[c] = from_f32<T>(value);
    total += to_f32(stored[c]);
  }
  const float mean = warp_sum(total) / static_cast<float>(d);
  float squares = 0.0f;
  for (int c = lane; c < d; c += warp_size) squares += (to_f32(stored[c]) - mean) * (to_f32(stored[c]) - mean);
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(d) + epsilon);
  for (int c = lane; c < d; c += warp_size)
    y[row * d + c] = from_f32<T>((to_f32(stored[c]) - mean) * rstd * weight[c] + bias[c]);
  if (lane == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
}

// With n = (sum - mean) * rstd and g = dy * weight: dsum = rstd * (g - mean(g) - n * mean(g n)). Rows are distributed
// round-robin over the warps of all blocks. partials: [blocks, 2, d], the sums of dy*n and of dy.
template <typename T, int PARTS, int WIDTH>
__global__ void __launch_bounds__(threads)
    norm_backward_kernel(const T* dy, const T* sum, const float* means, const float* rstds, const float* weight,
                         const T* extra, T* dsum, T* copy, float* partials, std::int64_t rows, int d) {
  wait_previous_kernel();
  constexpr int columns = PARTS * warp_size * WIDTH;
  __shared__ float shared[warps / 2][columns];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  float scale_sum[PARTS][WIDTH] = {}, shift_sum[PARTS][WIDTH] = {};
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * warps;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + warp;
  // The next row is loaded while the current one is summed.
  uint4 next_grads[PARTS], next_sums[PARTS];
  float next_mean = 0.0f, next_rstd = 0.0f;
  const auto fetch = [&](std::int64_t which) {
    if (which >= rows) return;
    next_mean = means[which];
    next_rstd = rstds[which];
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = (p * warp_size + lane) * WIDTH;
      if (column >= d) continue;
      next_grads[p] = *reinterpret_cast<const uint4*>(dy + which * d + column);
      next_sums[p] = *reinterpret_cast<const uint4*>(sum + which * d + column);
    }
  };
  fetch(row);
  for (; row < rows; row += step) {
    const std::int64_t base = row * d;
    const float mean = next_mean, rstd = next_rstd;
    float grads[PARTS][WIDTH], normal[PARTS][WIDTH];
    float sum_g = 0.0f, sum_gn = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      unpack16<T>(next_grads[p], grads[p]);
      unpack16<T>(next_sums[p], normal[p]);
    }
    fetch(row + step);
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = (p * warp_size + lane) * WIDTH;
      if (column >= d) continue;
      float scale[WIDTH];
      load_elements<WIDTH>(weight + column, scale);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        normal[p][i] = (normal[p][i] - mean) * rstd;
        scale_sum[p][i] += grads[p][i] * normal[p][i];
        shift_sum[p][i] += grads[p][i];
        grads[p][i] *= scale[i];
        sum_g += grads[p][i];
        sum_gn += grads[p][i] * normal[p][i];
      }
    }
    const float mean_g = warp_sum(sum_g) / static_cast<float>(d), mean_gn = warp_sum(sum_gn) / static_cast<float>(d);
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = (p * warp_size + lane) * WIDTH;
      if (column >= d) continue;
      float more[WIDTH] = {};
      if (extra != nullptr) load_elements<WIDTH>(extra + base + column, more);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) grads[p][i] = rstd * (grads[p][i] - mean_g - normal[p][i] * mean_gn) + more[i];
      store_elements<WIDTH>(dsum + base + column, grads[p]);
      if (copy != nullptr) store_elements<WIDTH>(copy + base + column, grads[p]);
    }
  }
  if (partials == nullptr) return;
    // Both sums over the block's warps: the upper half of the warps stores its numbers, the lower half adds its own to
    // them, and these sums are added up in order.
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    auto& mine = which == 0 ? scale_sum : shift_sum;
#pragma unroll
    for (int half = 1; half >= 0; --half) {
      __syncthreads();
      if (warp / (warps / 2) == half) {
        float* target = shared[warp % (warps / 2)];
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
#pragma unroll
          for (int i = 0; i < WIDTH; ++i) {
            float& place = target[(p * WIDTH + i) * warp_size + lane];
            place = half == 1 ? mine[p][i] : place + mine[p][i];
          }
        }
      }
    }
    __syncthreads();
    for (int place = threadIdx.x; place < columns; place += threads) {
      const int column =
          (place / warp_size / WIDTH * warp_size + place % warp_size) * WIDTH + place / warp_size % WIDTH;
      if (column >= d) continue;
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < warps / 2; ++w) total += shared[w][place];
      partials[(static_cast<std::int64_t>(blockIdx.x) * 2 + which) * d + column] = total;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(threads)
    norm_backward_any_kernel(const T* dy, const T* sum, const float* means, const float* rstds, const float* weight,
                             const T* extra, T* dsum, T* copy, std::int64_t rows, int d) {
  const int lane = threadIdx.x % warp_size;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (row >= rows) return;
  const float mean = means[row], rstd = rstds[row];
  float sum_g = 0.0f, sum_gn = 0.0f;
  for (int c = lane; c < d; c += warp_size) {
    const float g = to_f32(dy[row * d + c]) * weight[c], n = (to_f32(sum[row * d + c]) - mean) * rstd;
    sum_g += g;
    sum_gn += g * n;
  }
  const float mean_g = warp_sum(sum_g) / static_cast<float>(d), mean_gn = warp_sum(sum_gn) / static_cast<float>(d);
  for (int c = lane; c < d; c += warp_size) {
    const float g = to_f32(dy[row * d + c]) * weight[c], n = (to_f32(sum[row * d + c]) - mean) * rstd;
    const float more = extra != nullptr ? to_f32(extra[row * d + c]) : 0.0f;
    const T result = from_f32<T>(rstd * (g - mean_g - n * mean_gn) + more);
    dsum[row * d + c] = result;
    if (copy != nullptr) copy[row * d + c] = result;
  }
}

// Computes the parameter gradients for the kernel above, one thread per column. Must run before it, because dsum may
// share memory with dy.
template <typename T>
__global__ void __launch_bounds__(threads)
    norm_parameters_any_kernel(const T* dy, const T* sum, const float* means, const float* rstds, float* partials,
                               std::int64_t rows, int d, int rows_per_chunk) {
  const int column = blockIdx.x * threads + threadIdx.x;
  if (column >= d) return;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * rows_per_chunk,
                     end = min(rows, begin + rows_per_chunk);
  float scale_sum = 0.0f, shift_sum = 0.0f;
  for (std::int64_t row = begin; row < end; ++row) {
    const float g = to_f32(dy[row * d + column]);
    scale_sum += g * ((to_f32(sum[row * d + column]) - means[row]) * rstds[row]);
    shift_sum += g;
  }
  partials[(static_cast<std::int64_t>(blockIdx.y) * 2) * d + column] = scale_sum;
  partials[(static_cast<std::int64_t>(blockIdx.y) * 2 + 1) * d + column] = shift_sum;
}

}  // namespace

void add_norm_forward(Context& ctx, const Tensor& x, const Tensor* addend, const Param& weight, const Param& bias,
                      Tensor& sum, Tensor& y, Tensor& mean, Tensor& rstd) {
  const std::int64_t rows = x.dim(0);
  const int d = static_cast<int>(x.dim(1));
  if (rows == 0) return;
  with_real_type(x.dtype(), "LayerNorm", [&](auto tag) {
    using T = decltype(tag);
    constexpr int width = vector_width<T>;
    const T* in = elements_of<T>(x);
    const T* more = addend != nullptr ? elements_of<T>(*addend) : nullptr;
    const float *scale = floats(weight.value), *shift = floats(bias.value);
    T *total = elements_of<T>(sum), *out = elements_of<T>(y);
    const auto launch = [&](auto kernel) {
      launch_dependent(ctx, kernel, grid_for(rows, warps), threads, 0, in, more, scale, shift, total, out, floats(mean),
                       floats(rstd), rows, d);
    };
    const int parts = d % width == 0 && all_aligned16(in, more, scale, shift, total, out)
                          ? (d + warp_size * width - 1) / (warp_size * width)
                          : 99;
    if (parts <= 1)
      launch(norm_forward_kernel<T, 1, width>);
    else if (parts <= 2)
      launch(norm_forward_kernel<T, 2, width>);
    else if (parts <= 4)
      launch(norm_forward_kernel<T, 4, width>);
    else if (parts <= 8)
      launch(norm_forward_kernel<T, 8, width>);
    else
      launch(norm_forward_any_kernel<T>);
  });
}

void norm_backward(Context& ctx, const Tensor& dy, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
                   const Param& weight, const Param& bias, const Tensor* extra, Tensor& dsum, Tensor* copy) {
  const std::int64_t rows = dy.dim(0);
  const int d = static_cast<int>(dy.dim(1));
  if (rows == 0) return;
  const bool with_parameters = weight.grad || bias.grad;
  with_real_type(dy.dtype(), "LayerNorm", [&](auto tag) {
    using T = decltype(tag);
    constexpr int width = vector_width<T>;
    const T *grad = elements_of<T>(dy), *input = elements_of<T>(sum);
    const T* more = extra != nullptr ? elements_of<T>(*extra) : nullptr;
    const float* scale = floats(weight.value);
    T* out = elements_of<T>(dsum);
    T* twin = copy != nullptr ? elements_of<T>(*copy) : nullptr;
    float* scale_grad = weight.grad ? floats(weight.grad) : nullptr;
    float* shift_grad = bias.grad ? floats(bias.grad) : nullptr;
    const ArenaScope scope(*ctx.arena);
    // Registers hold two sums per column, so only rows with at most 32 columns per lane are processed in one pass.
    const bool vectors = d % width == 0 && d <= 1024 && all_aligned16(grad, input, more, scale, out, twin);
    if (vectors) {
      // As many blocks as two per multiprocessor, which registers allow for d = 512, so that no warp has more rows than
      // another by more than one.
      const int blocks = static_cast<int>(
          std::clamp<std::int64_t>((rows + warps - 1) / warps, 1, std::int64_t{2} * ctx.cuda->multiprocessors));
      float* partials = with_parameters ? partial_sums_buffer(ctx, blocks * 2 * d) : nullptr;
      const auto launch = [&](auto kernel) {
        launch_dependent(ctx, kernel, blocks, threads, 0, grad, input, floats(mean), floats(rstd), scale, more, out,
                         twin, partials, rows, d);
      };
      const int parts = (d + warp_size * width - 1) / (warp_size * width);
      if (parts <= 1)
        launch(norm_backward_kernel<T, 1, width>);
      else if (parts <= 2)
        launch(norm_backward_kernel<T, 2, width>);
      else if (parts <= 4)
        launch(norm_backward_kernel<T, 4, width>);
      else if constexpr (width == 4)
        launch(norm_backward_kernel<T, 8, width>);
      if (with_parameters) add_partials(ctx, partials, blocks, 2 * d, scale_grad, d, shift_grad);
      return;
    }
    if (with_parameters) {
      const int rows_per_chunk = static_cast<int>(std::max<std::int64_t>(64, (rows + 255) / 256));
      const int chunks = grid_for(rows, rows_per_chunk);
      float* partials = partial_sums_buffer(ctx, chunks * 2 * d);
      norm_parameters_any_kernel<T><<<dim3(grid_for(d, threads), chunks), threads, 0, ctx.cuda->stream>>>(
          grad, input, floats(mean), floats(rstd), partials, rows, d, rows_per_chunk);
      SOME_CUDA_LAUNCHED();
      add_partials(ctx, partials, chunks, 2 * d, scale_grad, d, shift_grad);
    }
    norm_backward_any_kernel<T><<<grid_for(rows, warps), threads, 0, ctx.cuda->stream>>>(
        grad, input, floats(mean), floats(rstd), scale, more, out, twin, rows, d);
    SOME_CUDA_LAUNCHED();
  });
}

}  // namespace some::cuda
