// What the search and the lesson share on the GPU.
#pragma once

#include "memory/store.h"
#include "ops/cuda_launch.cuh"
#include "ops/cuda_toolkit.cuh"

namespace some::memory::cuda {

constexpr float shortest = 1e-12f;
constexpr int threads = 256;
constexpr int warps = threads / warp_size;
constexpr std::int64_t slots_at_once = 8192;  // scores exist for this many slots at most

// A slot and how near it is; -1: none.
struct Near {
  float product;
  std::int32_t slot;

  // Among equals the lower slot.
  __device__ void consider(const Near& other) {
    if (other.slot >= 0 && (slot < 0 || other.product > product || (other.product == product && other.slot < slot)))
      *this = other;
  }
};
__device__ __forceinline__ Near nothing_near() { return {-INFINITY, -1}; }
// The nearest that the block has, in its first thread. shared: one a warp.
__device__ __forceinline__ Near block_nearest(Near mine, Near* shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    Near other;
    other.product = __shfl_xor_sync(full_warp, mine.product, offset);
    other.slot = __shfl_xor_sync(full_warp, mine.slot, offset);
    mine.consider(other);
  }
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < warps; ++w) mine.consider(shared[w]);
  }
  return mine;
}

// scores [rows, last - first] of queries [rows, d] with the keys of some slots.
inline void score(Context& ctx, const Store& store, const float* queries, std::int64_t rows, std::int64_t first,
                  std::int64_t last, float* scores) {
  const std::int64_t d = store.keys.dim(1);
  matmul(ctx, rows, last - first, d, {queries, DType::f32, false}, {floats(store.keys) + first * d, DType::f32, true},
         scores, DType::f32, false);
}

}  // namespace some::memory::cuda
