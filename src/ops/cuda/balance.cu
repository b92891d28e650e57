// The two optional auxiliary losses on routing (spec 5): load balancing, and the gate entropy band. They are off by
// default, so the kernels are plain rather than fused; sums are taken in a fixed order.
#include "kernels/cuda/toolkit.cuh"
#include "ops/route.h"

namespace some::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_size;

// Counts in counts[e] how often e was chosen, and in counts[experts] the positions. Integers, so the order of the
// additions does not matter.
__global__ void __launch_bounds__(threads)
    count_choices_kernel(const std::int32_t* indices, const std::int32_t* targets, std::int64_t rows, int k,
                         int experts, std::int32_t* counts) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (row >= rows || (targets != nullptr && targets[row] < 0)) return;
  for (int i = 0; i < k; ++i) atomicAdd(counts + indices[row * k + i], 1);
  atomicAdd(counts + experts, 1);
}

// Replaces scores[row, :] by the gradient of the loss, p * (slope - mean) / (positions * temperature), and sets
// share[row] to the row's part of the loss.
__global__ void __launch_bounds__(threads)
    balance_rows_kernel(float* scores, const std::int32_t* targets, const std::int32_t* counts,
                        const float* temperature, std::int64_t rows, int experts, int k, float coefficient,
                        float* share) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (row >= rows) return;
  const int lane = threadIdx.x % warp_size;
  float* line = scores + row * experts;
  if (targets != nullptr && targets[row] < 0) {
    for (int e = lane; e < experts; e += warp_size) line[e] = 0.0f;
    if (lane == 0) share[row] = 0.0f;
    return;
  }
  const float positions = static_cast<float>(counts[experts]);
  const float inverse = 1.0f / temperature[0];
  const float factor = coefficient * static_cast<float>(experts) / (positions * static_cast<float>(k));
  float highest = -INFINITY, sum = 0.0f, mean = 0.0f;
  for (int e = lane; e < experts; e += warp_size) highest = fmaxf(highest, line[e] * inverse);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) highest = fmaxf(highest, __shfl_xor_sync(full_warp, highest, offset));
  for (int e = lane; e < experts; e += warp_size) {
    const float weight = expf(line[e] * inverse - highest);
    sum += weight;
    mean += weight * (factor * static_cast<float>(counts[e]));
  }
  sum = warp_sum(sum);
  mean = warp_sum(mean) / sum;
  for (int e = lane; e < experts; e += warp_size)
    line[e] =
        expf(line[e] * inverse - highest) / sum * (factor * static_cast<float>(counts[e]) - mean) / positions * inverse;
  if (lane == 0) share[row] = mean;
}

__global__ void __launch_bounds__(1024)
    balance_total_kernel(const float* share, std::int64_t rows, const std::int32_t* positions, float* loss) {
  __shared__ double shared[warp_size];
  double sum = 0.0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) sum += share[row];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0 && positions[0] > 0) loss[0] += static_cast<float>(sum / positions[0]);
}

// A gate may round to 0, where g log g is 0; the lower bound keeps its slope finite.
__device__ __forceinline__ float gate_log(float gate) { return logf(fmaxf(gate, 1e-30f)); }

constexpr int entropy_blocks = 128;

__global__ void __launch_bounds__(threads)
    entropy_kernel(const float* gates, const std::int32_t* targets, std::int64_t rows, int k, double* partials) {
  __shared__ double shared[warp_size];
  double sum = 0.0, count = 0.0;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; row < rows;
       row += entropy_blocks * threads) {
    if (targets != nullptr && targets[row] < 0) continue;
    for (std::int64_t i = row * k; i < (row + 1) * k; ++i) sum -= static_cast<double>(gates[i] * gate_log(gates[i]));
    count += 1.0;
  }
  sum = block_sum(sum, shared);
  count = block_sum(count, shared);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
    partials[entropy_blocks + blockIdx.x] = count;
  }
}

__global__ void __launch_bounds__(entropy_blocks) entropy_total_kernel(const double* partials, double low, double high,
                                                                       double coefficient, float* slope, float* loss) {
  __shared__ double shared[warp_size];
  const double sum = block_sum(partials[threadIdx.x], shared);
  const double positions = block_sum(partials[entropy_blocks + threadIdx.x], shared);
  if (threadIdx.x != 0) return;
  slope[0] = 0.0f;
  if (positions == 0.0) return;
  const double mean = sum / positions;
  const double distance = mean < low ? mean - low : mean > high ? mean - high : 0.0;
  loss[0] += static_cast<float>(coefficient * distance * distance);
  slope[0] = static_cast<float>(2.0 * coefficient * distance / positions);
}

__global__ void __launch_bounds__(threads)
    entropy_slope_kernel(const float* gates, const std::int32_t* targets, std::int64_t rows, int k, const float* slope,
                         float* dgates) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= rows * k || slope[0] == 0.0f || (targets != nullptr && targets[i / k] < 0)) return;
  dgates[i] -= slope[0] * (gate_log(gates[i]) + 1.0f);
}

}  // namespace

void balance_loss(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor& temperature,
                  const Tensor& indices, const Tensor* targets, double coefficient, Tensor& dquery, Tensor& loss) {
  const std::int64_t rows = query.dim(0), d = query.dim(1), experts = keys.dim(0);
  const int k = static_cast<int>(indices.dim(1));
  if (rows == 0) return;
  const std::int32_t* wanted = targets != nullptr ? ints(*targets) : nullptr;
  const ArenaScope scope(*ctx.arena);
  const Tensor scores = ctx.scratch({rows, experts}, DType::f32);
  float* share = floats(ctx.scratch({rows}, DType::f32));
  std::int32_t* counts = ints(ctx.scratch({experts + 1}, DType::i32));
  SOME_CUDA_CHECK(
      cudaMemsetAsync(counts, 0, static_cast<std::size_t>(experts + 1) * sizeof(std::int32_t), ctx.cuda->stream));
  count_choices_kernel<<<grid_for(rows, threads), threads, 0, ctx.cuda->stream>>>(ints(indices), wanted, rows, k,
                                                                                  static_cast<int>(experts), counts);
  SOME_CUDA_LAUNCHED();
  matmul(ctx, rows, experts, d, {query.raw(), DType::f32, false}, {keys.raw(), DType::f32, true}, scores.raw(),
         DType::f32, false);
  balance_rows_kernel<<<grid_for(rows, warps), threads, 0, ctx.cuda->stream>>>(
      floats(scores), wanted, counts, floats(temperature), rows, static_cast<int>(experts), k,
      static_cast<float>(coefficient), share);
  SOME_CUDA_LAUNCHED();
  matmul(ctx, rows, d, experts, {scores.raw(), DType::f32, false}, {keys.raw(), DType::f32, false}, dquery.raw(),
         DType::f32, true);
  balance_total_kernel<<<1, 1024, 0, ctx.cuda->stream>>>(share, rows, counts + experts, floats(loss));
  SOME_CUDA_LAUNCHED();
}

void entropy_band_loss(Context& ctx, const Tensor& gates, const Tensor* targets, double low, double high,
                       double coefficient, Tensor& dgates, Tensor& loss) {
  const std::int64_t rows = gates.dim(0);
  const int k = static_cast<int>(gates.dim(1));
  if (rows == 0) return;
  const std::int32_t* wanted = targets != nullptr ? ints(*targets) : nullptr;
  const ArenaScope scope(*ctx.arena);
  double* partials = ctx.scratch({2, entropy_blocks}, DType::f64).data<double>();
  float* slope = floats(ctx.scratch({1}, DType::f32));
  entropy_kernel<<<entropy_blocks, threads, 0, ctx.cuda->stream>>>(floats(gates), wanted, rows, k, partials);
  SOME_CUDA_LAUNCHED();
  entropy_total_kernel<<<1, entropy_blocks, 0, ctx.cuda->stream>>>(partials, low, high, coefficient, slope,
                                                                   floats(loss));
  SOME_CUDA_LAUNCHED();
  entropy_slope_kernel<<<grid_for(rows * k, threads), threads, 0, ctx.cuda->stream>>>(floats(gates), wanted, rows, k,
                                                                                      slope, floats(dgates));
  SOME_CUDA_LAUNCHED();
}

}  // namespace some::cuda
