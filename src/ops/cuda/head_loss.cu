// Output head and cross-entropy, in chunks of rows: first the logits of a chunk in compute precision; then one kernel
// that reads each logit once, overwrites it with its gradient and sums the bias gradient along the way; then two GEMMs.
// Bytes per logit (bf16): 2 written by the GEMM, 2 read and 2 written here, 2 + 2 read by the GEMMs of the gradients.
#include <algorithm>
#include <optional>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/reduce/column_sums.h"
#include "ops/head_loss.h"

namespace some::cuda {
namespace {

constexpr int threads = 512;
constexpr int warps = threads / warp_size;
constexpr std::int64_t largest_chunk = std::int64_t{64} << 20;  // logits at a time

// Factor on the loss: in memory, or `value` if `memory` is null.
struct Factor {
  float value;
  const float* memory;
  __device__ __forceinline__ float get() const { return memory != nullptr ? *memory : value; }
};

struct Softmax {
  float highest, sum;
};

template <typename T>
__device__ __forceinline__ float exp_for(float x) {
  return std::is_same_v<T, float> ? expf(x) : __expf(x);
}

__device__ __forceinline__ Softmax merge(Softmax a, Softmax b) {
  const float highest = fmaxf(a.highest, b.highest);
  // If both parts are empty, exp(-inf + inf) would be NaN.
  if (highest == -INFINITY) return {highest, 0.0f};
  return {highest, a.sum * expf(a.highest - highest) + b.sum * expf(b.highest - highest)};
}

// Returns the merged softmax sums of a warp's lanes: first the largest value, so that one exponential rescales each
// lane's sum.
template <int LANES>
__device__ __forceinline__ Softmax warp_merge(Softmax mine) {
  float highest = mine.highest;
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(full_warp, highest, offset));
  // If both parts are empty, exp(-inf + inf) would be NaN.
  float sum = highest == -INFINITY ? 0.0f : mine.sum * expf(mine.highest - highest);
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(full_warp, sum, offset);
  return {highest, sum};
}

// Returns the merged softmax sums of a block, the same in every thread. `shared` may be reused after the next barrier.
__device__ __forceinline__ Softmax block_merge(Softmax mine, Softmax* shared) {
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  mine = warp_merge<warp_size>(mine);
  if (lane == 0) shared[warp] = mine;
  __syncthreads();
  return warp_merge<warps>(shared[lane % warps]);
}

// Computes the loss and its gradient. Rows are distributed round-robin over the blocks, and a thread always has the
// same columns: its part p starts at column (p*threads + thread)*WIDTH. The row stays in registers between the sum and
// the gradient, and so do the column sums over the block's rows. partials: [blocks, vocabulary].
template <typename T, int PARTS, int WIDTH, bool GRADIENT>
__global__ void __launch_bounds__(threads, 2)
    cross_entropy_kernel(T* logits, const std::int32_t* targets, std::int64_t rows, int vocabulary, Factor of_loss,
                         float* nll, float* partials) {
  wait_previous_kernel();
  const float scale = of_loss.get();
  __shared__ Softmax shared[2][warps];
  float column_sum[PARTS][WIDTH] = {};
  int turn = 0;
  // The next row is loaded while the current one is summed.
  uint4 next[PARTS];
  std::int32_t next_target = -1;
  const auto fetch = [&](std::int64_t row) {
    if (row >= rows) return;
    next_target = targets[row];
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = (p * threads + threadIdx.x) * WIDTH;
      if (column < vocabulary) next[p] = *reinterpret_cast<const uint4*>(logits + row * vocabulary + column);
    }
  };
  fetch(blockIdx.x);
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* line = logits + row * vocabulary;
    const std::int32_t target = next_target;
    float values[PARTS][WIDTH];
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = (p * threads + threadIdx.x) * WIDTH;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) values[p][i] = -INFINITY;
      if (column < vocabulary) unpack16<T>(next[p], values[p]);
    }
    fetch(row + gridDim.x);
    if (target < 0) {
      if (GRADIENT) {
        const float zeros[WIDTH] = {};
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
          const int column = (p * threads + threadIdx.x) * WIDTH;
          if (column < vocabulary) store_elements<WIDTH>(line + column, zeros);
        }
      }
      if (threadIdx.x == 0) nll[row] = 0.0f;
      continue;
    }
    float highest = -INFINITY, wanted = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int before = target - (p * threads + static_cast<int>(threadIdx.x)) * WIDTH;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        highest = fmaxf(highest, values[p][i]);
        if (i == before) wanted = values[p][i];
      }
    }
    const float shift = highest == -INFINITY ? 0.0f : highest;  // -INFINITY for a thread without columns
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        values[p][i] = exp_for<T>(values[p][i] - shift);
        sum += values[p][i];
      }
    }
    const Softmax all = block_merge({highest, sum}, shared[turn]);
    turn ^= 1;  // the two halves alternate: a warp may arrive here again before the slowest warp has read
    if (target / WIDTH % threads == static_cast<int>(threadIdx.x)) nll[row] = logf(all.sum) + all.highest - wanted;
    if constexpr (GRADIENT) {
      const float factor = scale / all.sum * expf(shift - all.highest);
#pragma unroll
      for (int p = 0; p < PARTS; ++p) {
        const int column = (p * threads + threadIdx.x) * WIDTH;
        if (column >= vocabulary) continue;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
          values[p][i] = values[p][i] * factor - (column + i == target ? scale : 0.0f);
          column_sum[p][i] += values[p][i];
        }
        store_elements<WIDTH>(line + column, values[p]);
      }
    }
  }
  if constexpr (GRADIENT) {
    if (partials == nullptr) return;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = (p * threads + threadIdx.x) * WIDTH;
      if (column < vocabulary)
        store_elements<WIDTH>(partials + static_cast<std::int64_t>(blockIdx.x) * vocabulary + column, column_sum[p]);
    }
  }
}

// Computes the same for any size of vocabulary: the row is read twice.
template <typename T>
__global__ void __launch_bounds__(threads)
    cross_entropy_any_kernel(T* logits, const std::int32_t* targets, int vocabulary, Factor of_loss, bool gradient,
                             float* nll) {
  wait_previous_kernel();
  const float scale = of_loss.get();
  __shared__ Softmax shared[warps];
  const std::int64_t row = blockIdx.x;
  T* line = logits + row * vocabulary;
  const std::int32_t target = targets[row];
  if (target < 0) {
    if (gradient) {
      for (int column = threadIdx.x; column < vocabulary; column += threads) line[column] = from_f32<T>(0.0f);
    }
    if (threadIdx.x == 0) nll[row] = 0.0f;
    return;
  }
  const float wanted = to_f32(line[target]);
  Softmax mine{-INFINITY, 0.0f};
  for (int column = threadIdx.x; column < vocabulary; column += threads)
    mine = merge(mine, {to_f32(line[column]), 1.0f});
  const Softmax all = block_merge(mine, shared);
  if (threadIdx.x == 0) nll[row] = logf(all.sum) + all.highest - wanted;
  if (!gradient) return;
  for (int column = threadIdx.x; column < vocabulary; column += threads) {
    const float p = exp_for<T>(to_f32(line[column]) - all.highest) / all.sum;
    line[column] = from_f32<T>((p - (column == target ? 1.0f : 0.0f)) * scale);
  }
}

}  // namespace

void head_loss(Context& ctx, const Tensor& h, const Param& weight, const Param& bias, const Tensor& targets,
               const LossScale& scale, Tensor& nll, Tensor* dh, Schedule* schedule) {
  const std::int64_t tokens = h.dim(0), d = h.dim(1), vocabulary = weight.value.dim(0);
  if (tokens == 0) return;
  const bool gradient = dh != nullptr;
  const Factor factor{static_cast<float>(scale.value), scale.tensor ? floats(scale.tensor) : nullptr};
  float* bias_grad = gradient && bias && bias.grad ? floats(bias.grad) : nullptr;
  // Chunks are of equal size, so that no GEMM is left with only a few rows.
  const std::int64_t max_rows = std::max<std::int64_t>(128, largest_chunk / vocabulary);
  const std::int64_t chunks = (tokens + max_rows - 1) / max_rows;
  const std::int64_t chunk_rows = (tokens + chunks - 1) / chunks;
  with_real_type(h.dtype(), "the head", [&](auto tag) {
    using T = decltype(tag);
    constexpr int width = vector_width<T>;
    const int parts = vocabulary % width == 0 ? grid_for(vocabulary, threads * width) : 99;
    constexpr int max_parts = 32 / width;
    const bool in_registers = parts <= max_parts;
    const int blocks = static_cast<int>(std::min<std::int64_t>(chunk_rows, 2 * ctx.cuda->multiprocessors));
    // A concurrent kernel may read its partial sums after this function has returned.
    std::optional<ArenaScope> scope;
    if (schedule == nullptr) scope.emplace(*ctx.arena);
    float* partials =
        in_registers && bias_grad != nullptr ? floats(ctx.scratch({blocks, vocabulary}, DType::f32)) : nullptr;
    if (!scope) scope.emplace(*ctx.arena);
    const Tensor scratch = ctx.scratch({chunk_rows, vocabulary}, h.dtype());
    T* logits = elements_of<T>(scratch);
    for (std::int64_t first = 0; first < tokens; first += chunk_rows) {
      const std::int64_t rows = std::min(chunk_rows, tokens - first);
      const T* states = elements_of<T>(h) + first * d;
      matmul(ctx, rows, vocabulary, d, {states, h.dtype(), false}, {weight.compute.raw(), weight.compute.dtype(), true},
             logits, h.dtype(), false, bias ? bias.compute.raw() : nullptr);
      const std::int32_t* wanted = ints(targets) + first;
      float* losses = floats(nll) + first;
      const auto launch = [&](auto kernel) {
        launch_dependent(ctx, kernel, blocks, threads, 0, logits, wanted, rows, static_cast<int>(vocabulary), factor,
                         losses, partials);
      };
      const auto launch_parts = [&](auto count) {
        constexpr int P = decltype(count)::value;
        gradient ? launch(cross_entropy_kernel<T, P, width, true>) : launch(cross_entropy_kernel<T, P, width, false>);
      };
      if (!in_registers) {
        launch_dependent(ctx, cross_entropy_any_kernel<T>, static_cast<unsigned>(rows), threads, 0, logits, wanted,
                         static_cast<int>(vocabulary), factor, gradient, losses);
      } else if (parts <= max_parts / 4) {
        launch_parts(std::integral_constant<int, max_parts / 4>{});
      } else if (parts <= max_parts / 2) {
        launch_parts(std::integral_constant<int, max_parts / 2>{});
      } else {
        launch_parts(std::integral_constant<int, max_parts>{});
      }
      if (!gradient) continue;
      if (bias_grad != nullptr) {
        if (in_registers)
          add_partials(schedule != nullptr && chunks == 1 ? schedule->fork() : ctx, partials, blocks, vocabulary,
                       bias_grad);
        else
          add_column_sums(ctx, logits, h.dtype(), rows, vocabulary, bias_grad);
      }
      T* state_grad = elements_of<T>(*dh) + first * d;
      matmul(ctx, rows, d, vocabulary, {logits, h.dtype(), false},
             {weight.compute.raw(), weight.compute.dtype(), false}, state_grad, h.dtype(), false);
      if (weight.grad)
        matmul(ctx, vocabulary, d, rows, {logits, h.dtype(), true}, {states, h.dtype(), false}, weight.grad.raw(),
               weight.grad.dtype(), true);
    }
  });
}

}  // namespace some::cuda
