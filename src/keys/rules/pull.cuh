// Peer pull on the GPU (spec 4.4), from the snapshot `moved`.
#pragma once

#include "kernels/cuda/toolkit.cuh"
#include "keys/update.h"

namespace some::cuda {

constexpr int pull_experts = 8;  // per block, so that each peer's row is read once for all of them
constexpr int pull_columns = 128;

// Moves experts `first` to first + 7, in the columns from column_block * 128 on. Called by a block of pull_columns
// threads.
__device__ inline void pull_peers(const UpdatedLayer<float>& layer, double factor, int first, int column_block,
                                  double* shared) {
  __shared__ double weights[pull_columns][pull_experts];
  const PullRule::Plan& plan = layer.plan;
  const int experts = static_cast<int>(layer.experts), d = static_cast<int>(layer.size);
  const int column = column_block * pull_columns + static_cast<int>(threadIdx.x);
  // sum_f w (K[f] - K[e]) = sum_f w K[f] - (sum_f w) K[e]: one operation per pair and column instead of three.
  double row[pull_experts], sum[pull_experts], total[pull_experts];
#pragma unroll
  for (int i = 0; i < pull_experts; ++i) {
    const bool exists = first + i < experts && column < d;
    row[i] = exists ? layer.moved[static_cast<std::int64_t>(first + i) * d + column] : 0.0;
    sum[i] = total[i] = 0.0;
  }
  for (int base = 0; base < experts; base += pull_columns) {
    __syncthreads();
    const int peer = base + static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < pull_experts; ++i) {
      double weight = 0.0;
      const int expert = first + i;
      if (peer < experts && expert < experts && peer != expert) {
        const std::int32_t count = layer.together[static_cast<std::int64_t>(expert) * experts + peer];
        if (count != 0) weight = plan.weight(factor, count, layer.usage[expert], layer.usage[peer]);
      }
      weights[threadIdx.x][i] = weight;
      total[i] += weight;
    }
    __syncthreads();
    if (column >= d) continue;
    const int peers = min(pull_columns, experts - base);
    constexpr int ahead = 16;  // peers whose loads are in flight at a time
    for (int first_peer = 0; first_peer < peers; first_peer += ahead) {
      double other[ahead];
#pragma unroll
      for (int p = 0; p < ahead; ++p)
        other[p] =
            first_peer + p < peers ? layer.moved[static_cast<std::int64_t>(base + first_peer + p) * d + column] : 0.0;
#pragma unroll
      for (int p = 0; p < ahead; ++p) {
        if (first_peer + p >= peers) break;
#pragma unroll
        for (int i = 0; i < pull_experts; ++i) sum[i] = fma(weights[first_peer + p][i], other[p], sum[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < pull_experts; ++i) {
    total[i] = block_sum(total[i], shared);  // each thread saw only every 128th peer
    if (column < d && first + i < experts)
      layer.pulled[static_cast<std::int64_t>(first + i) * d + column] = row[i] + (sum[i] - total[i] * row[i]);
  }
}

}  // namespace some::cuda
