// Embedding. Forward reads and writes one row per token; backward sorts the tokens by id and sums the rows of each id.
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/reduce/segment_sums.h"
#include "ops/embed.h"

namespace some::cuda {
namespace {

constexpr int threads = 128;
constexpr int tokens_per_block = 16;

// A thread keeps its columns for all tokens of a block, so that it computes each rate 10000^(-2i/d) only once. The
// angle is reduced in double precision: in float, the angle of position p would be off by p * 6e-8.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    embed_forward_kernel(const std::int32_t* __restrict__ tokens, const std::int32_t* __restrict__ positions,
                         const float* __restrict__ table, std::int64_t count, int d, float scale, bool sinusoidal,
                         T* __restrict__ out) {
  wait_previous_kernel();
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * tokens_per_block,
                     end = min(count, begin + tokens_per_block);
  for (int column = threadIdx.x * WIDTH; column < d; column += threads * WIDTH) {
    double turns[WIDTH];  // advance of the angle per position, in full turns
    if (sinusoidal) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        const int even = (column + i) / 2 * 2;
        turns[i] = exp(-9.210340371976182736 * even / d) * 0.15915494309189533577;
      }
    }
#pragma unroll 4
    for (std::int64_t t = begin; t < end; ++t) {
      float values[WIDTH];
      load_elements<WIDTH>(table + static_cast<std::int64_t>(tokens[t]) * d + column, values);
      const double position = sinusoidal ? positions[t] : 0;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        values[i] *= scale;
        if (sinusoidal) {
          const double turn = position * turns[i];
          const float angle = static_cast<float>((turn - floor(turn)) * 6.283185307179586477);
          values[i] += (column + i) % 2 == 0 ? sinf(angle) : cosf(angle);
        }
      }
      store_elements<WIDTH>(out + t * d + column, values);
    }
  }
}

__global__ void iota_kernel(std::int32_t* out, int count) {
  wait_previous_kernel();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = i;
}

}  // namespace

void embed_forward(Context& ctx, const Tensor& tokens, const Tensor& positions, const Param& embed, bool sinusoidal,
                   Tensor& out) {
  const std::int64_t count = tokens.elements();
  const int d = static_cast<int>(embed.value.dim(1));
  if (count == 0) return;
  const float scale = static_cast<float>(std::sqrt(static_cast<double>(d)));
  with_real_type(out.dtype(), "the embedding", [&](auto tag) {
    using T = decltype(tag);
    const float* table = floats(embed.value);
    T* target = elements_of<T>(out);
    const auto launch = [&](auto kernel) {
      launch_dependent(ctx, kernel, grid_for(count, tokens_per_block), threads, 0, ints(tokens), ints(positions), table,
                       count, d, scale, sinusoidal, target);
    };
    if (d % 4 == 0 && all_aligned16(table, target))
      launch(embed_forward_kernel<T, 4>);
    else
      launch(embed_forward_kernel<T, 1>);
  });
}

TokenOrder order_tokens(Context& ctx, const Tensor& tokens, const Param& embed) {
  const std::int64_t count = tokens.elements();
  if (!embed.grad || count == 0) return {};
  TokenOrder order{ctx.scratch({count}, DType::i32), ctx.scratch({count}, DType::i32)};
  const ArenaScope scope(*ctx.arena);
  std::int32_t* places = ints(ctx.scratch({count}, DType::i32));
  launch_dependent(ctx, iota_kernel, grid_for(count, 256), 256, 0, places, static_cast<int>(count));
  sort_pairs_into(ctx, ints(tokens), places, count, bits_for(embed.value.dim(0) - 1), ints(order.ids),
                  ints(order.places));
  return order;
}

void embed_backward(Context& ctx, const Tensor& tokens, const TokenOrder& order, const Tensor& dout,
                    const Param& embed) {
  const std::int64_t count = tokens.elements();
  if (!embed.grad || count == 0) return;
  const int d = static_cast<int>(embed.value.dim(1));
  const SegmentSums sums{{ints(order.ids), ints(order.places)}, dout.raw(), floats(embed.grad)};
  add_segment_sums(ctx, std::span(&sums, 1), count, static_cast<std::int32_t>(embed.value.dim(0)), 1, dout.dtype(), d,
                   static_cast<float>(std::sqrt(static_cast<double>(d))));
}

}  // namespace some::cuda
