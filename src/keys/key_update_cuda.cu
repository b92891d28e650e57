// The key update of spec 4 on the GPU: three small kernels, and a fourth if a rule acts on the stored keys. Nothing is
// read back; even whether any position took part is checked on the device. As on the CPU, rows stay in double precision
// from the first movement to the last. One layer does not fill the GPU, so every kernel handles several.
#include <algorithm>

#include "kernels/cuda/toolkit.cuh"
#include "keys/rules/pull.cuh"
#include "keys/update.h"

namespace some::cuda {
namespace {

constexpr int threads = 256;

// All threads of a block work on one key together.
struct BlockLanes {
  static constexpr bool serial = false;
  double* shared;  // [warp_size]

  __device__ bool first() const { return threadIdx.x == 0; }
  __device__ void wait() const { __syncthreads(); }
  template <typename Body>
  __device__ void each(std::int64_t count, Body&& body) const {
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) body(i);
  }
  template <typename Term>
  __device__ double sum(std::int64_t count, Term&& term) const {
    double part = 0.0;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) part += term(i);
    return block_sum(part, shared);
  }
  template <typename Test>
  __device__ std::int64_t count(std::int64_t count, Test&& test) const {
    std::int64_t total = 0;
    for (std::int64_t base = 0; base < count; base += blockDim.x) {
      const std::int64_t i = base + threadIdx.x;
      total += __syncthreads_count(i < count && test(i));
    }
    return total;
  }
};

using Layer = UpdatedLayer<float>;
using BlockKey = Key<Layer, BlockLanes>;

// Per launch: the layers' descriptions are kernel arguments, limited to 4 KB.
constexpr int max_layers = std::min<int>(12, 4000 / sizeof(Layer));
static_assert(max_layers > 0);
struct Layers {
  Layer layer[max_layers];
};

// Block (e, y) updates the counts of expert e of layer y and moves its key.
__global__ void __launch_bounds__(threads) move_kernel(const __grid_constant__ Layers layers) {
  __shared__ double shared[warp_size];
  const Layer& layer = layers.layer[blockIdx.y];
  const int expert = blockIdx.x;
  const bool nothing = layer.positions[0] == 0;
  if (expert == 0 && threadIdx.x == 0) {
    layer.counts[2] = 0;
    layer.counts[3] = layer.positions[0];
  }
  if (nothing) return;
  const BlockLanes lanes{shared};
  double* const row = layer.moved + expert * layer.size;
  const BlockKey key{layer, lanes, UsageRule::factor(layer, lanes), expert, row};
  if (lanes.first()) Rules::count(key);
  lanes.each(layer.size, [&](std::int64_t j) { row[j] = layer.keys[expert * layer.size + j]; });
  __syncthreads();  // Rules::move reads the expert's counts and its row
  Rules::move(key);
}

// Block (x, y, z) applies peer pull to experts 8x to 8x+7 of layer z, in columns 128y to 128y+127. The last block in x
// surveys the layer instead, which reads only the experts' counts.
__global__ void __launch_bounds__(pull_columns) pull_kernel(const __grid_constant__ Layers layers) {
  __shared__ double shared[warp_size];
  const Layer& layer = layers.layer[blockIdx.z];
  if (layer.positions[0] == 0) return;
  const BlockLanes lanes{shared};
  if (blockIdx.x == gridDim.x - 1) {
    if (blockIdx.y == 0) Rules::survey(layer, lanes);
    return;
  }
  if (layer.pulled == layer.moved) return;
  pull_peers(layer, UsageRule::factor(layer, lanes), static_cast<int>(blockIdx.x) * pull_experts,
             static_cast<int>(blockIdx.y), shared);
}

// Block (e, y) finishes key e of layer y and stores it.
__global__ void __launch_bounds__(threads) finish_kernel(const __grid_constant__ Layers layers) {
  extern __shared__ double row[];
  __shared__ double shared[warp_size];
  const Layer& layer = layers.layer[blockIdx.y];
  if (layer.positions[0] == 0) return;
  const BlockLanes lanes{shared};
  const int expert = blockIdx.x;
  const BlockKey key{layer, lanes, UsageRule::factor(layer, lanes), expert, row};
  const double* const source = layer.pulled + expert * layer.size;
  lanes.each(layer.size, [&](std::int64_t j) { row[j] = source[j]; });
  Rules::finish(key);
  lanes.each(layer.size, [&](std::int64_t j) { layer.keys[expert * layer.size + j] = static_cast<float>(row[j]); });
  Rules::refine(key);
}

__global__ void __launch_bounds__(threads) after_kernel(const __grid_constant__ Layers layers) {
  extern __shared__ double row[];
  __shared__ double shared[warp_size];
  const Layer& layer = layers.layer[blockIdx.y];
  if (layer.positions[0] == 0) return;
  const BlockLanes lanes{shared};
  Rules::after(BlockKey{layer, lanes, UsageRule::factor(layer, lanes), static_cast<std::int64_t>(blockIdx.x), row});
}

}  // namespace

void update_keys(Context& ctx, std::span<const LayerUpdate> layers) {
  if (layers.empty()) return;
  const std::int64_t experts = layers[0].state->keys.dim(0), d = layers[0].state->keys.dim(1);
  if (d > 6000) failed(Code::size_unsupported, "keys on the GPU may have at most 6000 dimensions (got {})", d);
  for (const LayerUpdate& layer : layers) {
    if (layer.state->keys.shape() != layers[0].state->keys.shape())
      failed(Code::shape_mismatch, "keys {} and {} cannot be updated together", layers[0].state->keys.shape().text(),
             layer.state->keys.shape().text());
    ++layer.state->steps;  // spec 4.1
  }
  const std::size_t row_bytes = static_cast<std::size_t>(d) * sizeof(double);
  for (std::size_t begin = 0; begin < layers.size(); begin += max_layers) {
    const ArenaScope scope(*ctx.arena);
    const unsigned number = static_cast<unsigned>(std::min<std::size_t>(max_layers, layers.size() - begin));
    Layers some{};
    bool pulls_or_surveys = false, acts_after = false;
    for (unsigned i = 0; i < number; ++i) {
      const Layer& layer = some.layer[i] = open_update<float>(ctx, layers[begin + i]);
      pulls_or_surveys = pulls_or_surveys || layer.pulled != layer.moved || Rules::surveys(layer.plan);
      acts_after = acts_after || Rules::acts_after(layer.plan);
    }
    const dim3 blocks(static_cast<unsigned>(experts), number);
    move_kernel<<<blocks, threads, 0, ctx.cuda->stream>>>(some);
    SOME_CUDA_LAUNCHED();
    if (pulls_or_surveys) {
      pull_kernel<<<dim3(grid_for(experts, pull_experts) + 1, grid_for(d, pull_columns), number), pull_columns, 0,
                    ctx.cuda->stream>>>(some);
      SOME_CUDA_LAUNCHED();
    }
    finish_kernel<<<blocks, threads, row_bytes, ctx.cuda->stream>>>(some);
    SOME_CUDA_LAUNCHED();
    if (acts_after) {
      after_kernel<<<blocks, threads, row_bytes, ctx.cuda->stream>>>(some);
      SOME_CUDA_LAUNCHED();
    }
  }
}

}  // namespace some::cuda
