// Dropout: reads and writes each element once (2 and 2 bytes per element with bf16), and computes ten rounds of Philox
// per 8 elements, about 12 integer operations per element.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "ops/dropout.h"

namespace some::cuda {
namespace {

constexpr int threads = 256;

struct Mask {
  const float* key;
  std::uint64_t place;
  std::int64_t first_position;
  std::uint32_t threshold;
  float scale;
};

// Each thread computes one group of a row, of `width` channels.
template <typename T, bool WHOLE>
__global__ void __launch_bounds__(threads)
    dropout_kernel(Mask mask, const T* x, T* y, std::int64_t d, std::int64_t groups, std::int64_t count) {
  wait_previous_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = i / groups, group = i % groups, first = row * d + group * dropout_group;
  const Philox bits = dropout_bits(dropout_key(mask.key), mask.place, mask.first_position + row, group);
  if constexpr (WHOLE) {
    float values[dropout_group];
    load_elements<dropout_group>(x + first, values);
#pragma unroll
    for (int j = 0; j < dropout_group; ++j)
      values[j] = dropout_keeps(bits, j, mask.threshold) ? values[j] * mask.scale : 0.0f;
    store_elements<dropout_group>(y + first, values);
  } else {
    const std::int64_t width =
        min(static_cast<long long>(dropout_group), static_cast<long long>(d - group * dropout_group));
    for (int j = 0; j < width; ++j) {
      float value[1];
      load_elements<1>(x + first + j, value);
      value[0] = dropout_keeps(bits, j, mask.threshold) ? value[0] * mask.scale : 0.0f;
      store_elements<1>(y + first + j, value);
    }
  }
}

}  // namespace

void apply_dropout(Context& ctx, const Dropout& dropout, const Tensor& x, Tensor& y) {
  const std::int64_t d = x.dim(1), groups = (d + dropout_group - 1) / dropout_group, count = x.dim(0) * groups;
  if (count == 0) return;
  const std::uint32_t threshold = dropout_threshold(dropout.rate);
  const Mask mask{dropout.key.data<float>(), dropout.place, dropout.first_position, threshold,
                  static_cast<float>(dropout_scale(threshold))};
  with_real_type(x.dtype(), "dropout", [&](auto zero) {
    using T = decltype(zero);
    const T* in = elements_of<T>(x);
    T* out = elements_of<T>(y);
    if (d % dropout_group == 0 && all_aligned16(in, out))
      launch_dependent(ctx, dropout_kernel<T, true>, grid_for(count, threads), threads, 0, mask, in, out, d, groups,
                       count);
    else
      launch_dependent(ctx, dropout_kernel<T, false>, grid_for(count, threads), threads, 0, mask, in, out, d, groups,
                       count);
  });
}

}  // namespace some::cuda
