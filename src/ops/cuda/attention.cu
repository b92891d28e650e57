// Attention on the GPU (spec 2): selection of a kernel, rotary position embeddings, and the KV cache for generation.
#include <cmath>

#include "kernels/attention/flash.cuh"
#include "kernels/attention/flash_hopper.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul.h"
#include "ops/attention.h"
#include "runtime/row_products.h"

namespace some::cuda {
namespace {

// Computes delta[head, t] = dot product of dout and out over the head's columns, with eight lanes per head and token,
// so that adjacent lanes read adjacent bytes.
constexpr int delta_lanes = 8;
template <typename T>
__global__ void __launch_bounds__(256) delta_kernel(const T* __restrict__ dout, const T* __restrict__ out, int tokens,
                                                    int heads, int head_size, float* __restrict__ delta) {
  wait_previous_kernel();
  const int lane = threadIdx.x % delta_lanes;
  const std::int64_t item = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / delta_lanes;
  const bool valid = item < static_cast<std::int64_t>(tokens) * heads;
  const std::int64_t start = valid ? item * head_size : 0;
  float sum = 0.f;
  if (sizeof(T) == 2 && head_size % 8 == 0) {
    for (int c = 8 * lane; c < head_size; c += 8 * delta_lanes) {
      const uint4 left = *reinterpret_cast<const uint4*>(dout + start + c);
      const uint4 right = *reinterpret_cast<const uint4*>(out + start + c);
      add_products(sum, left, right);
    }
  } else {
    for (int c = lane; c < head_size; c += delta_lanes)
      sum = fmaf(to_f32(dout[start + c]), to_f32(out[start + c]), sum);
  }
#pragma unroll
  for (int offset = delta_lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (valid && lane == 0) delta[item % heads * tokens + item / heads] = sum;
}

// Applies RoPE: one thread per token and pair of columns, which goes through all heads of queries and keys, with the
// loads of four in flight. The angle is reduced in double precision: at a thousand radians, a float has lost the
// significant digits.
template <typename T>
__global__ void __launch_bounds__(256) rope_kernel(T* qkv, const std::int32_t* __restrict__ positions,
                                                   std::int64_t tokens, int heads, int head_size, float direction) {
  const int pairs = head_size / 2;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (item >= tokens * pairs) return;
  const int pair = static_cast<int>(item % pairs);
  const std::int64_t token = item / pairs;
  constexpr double log2_base = 13.287712379549449, turn = 6.283185307179586;
  const double angle = positions[token] * exp2(-2.0 * pair / head_size * log2_base);
  float sine, cosine;
  sincosf(static_cast<float>(angle - turn * rint(angle / turn)), &sine, &cosine);
  sine *= direction;
  T* values = qkv + token * 3 * heads * head_size + 2 * pair;
  constexpr int together = 4;
  for (int part = 0; part < 2 * heads; part += together, values += together * head_size) {
    float first[together] = {}, second[together] = {};
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (part + i >= 2 * heads) continue;
      first[i] = to_f32(values[i * head_size]);
      second[i] = to_f32(values[i * head_size + 1]);
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (part + i >= 2 * heads) continue;
      values[i * head_size] = from_f32<T>(first[i] * cosine - second[i] * sine);
      values[i * head_size + 1] = from_f32<T>(first[i] * sine + second[i] * cosine);
    }
  }
}

// Copies keys and values of the new tokens into the cache.
template <typename T>
__global__ void __launch_bounds__(256)
    cache_store_kernel(const T* __restrict__ qkv, const std::int32_t* __restrict__ slots,
                       const std::int32_t* __restrict__ positions, std::int64_t rows, int width, std::int64_t capacity,
                       T* __restrict__ cache) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (item >= rows * 2 * width) return;
  const std::int64_t row = item / (2 * width), column = item % (2 * width);
  cache[(slots[row] * capacity + positions[row]) * 2 * width + column] = qkv[row * 3 * width + width + column];
}

template <typename T>
__global__ void __launch_bounds__(128)
    cached_kernel(const T* __restrict__ qkv, const std::int32_t* __restrict__ slots,
                  const std::int32_t* __restrict__ positions, std::int64_t rows, int heads, int head_size,
                  std::int64_t capacity, float scale, const T* __restrict__ cache, T* __restrict__ out) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (item >= rows * heads) return;
  const std::int64_t row = item / heads, head = item % heads;
  const std::int64_t width = heads * head_size;
  const T* const keys = cache + slots[row] * capacity * 2 * width + head * head_size;
  attend(qkv + row * 3 * width + head * head_size, keys, keys + width, 2 * width, positions[row] + 1, head_size, scale,
         out + row * width + head * head_size, threadIdx.x & 31);
}

AttentionArguments arguments_of(const Tensor& qkv, const Sequences& sequences, int heads, bool causal) {
  AttentionArguments arguments{};
  arguments.qkv = qkv.raw();
  arguments.offsets = sequences.offsets.data<std::int32_t>();
  arguments.tokens = static_cast<int>(qkv.dim(0));
  arguments.heads = heads;
  arguments.head_size = static_cast<int>(qkv.dim(1) / 3 / heads);
  arguments.causal = causal ? 1 : 0;
  arguments.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(arguments.head_size)));
  if (arguments.head_size > plain_head_limit) {
    bad_input(Code::size_unsupported,
              "attention on the GPU supports heads of at most {} columns (got {}); use more heads", plain_head_limit,
              arguments.head_size);
  }
  return arguments;
}

bool fits_tensor_cores(const Context& ctx, const AttentionArguments& arguments) {
  return ctx.compute == DType::bf16 && arguments.head_size % 8 == 0 && arguments.head_size <= 128;
}

// Calls run with the padded head size and the number of row blocks per warp: two if sequences are long and there is
// enough work.
template <typename Run>
void by_head_size(const Context& ctx, const AttentionArguments& arguments, const Sequences& sequences, Run&& run) {
  const std::int64_t large_tiles = (sequences.longest + 127) / 128 * sequences.count * arguments.heads;
  const bool two = sequences.longest >= 384 && large_tiles >= 2 * ctx.cuda->multiprocessors;
  const int size = arguments.head_size;
  if (size <= 16) return two ? run.template operator()<16, 2>() : run.template operator()<16, 1>();
  if (size <= 32) return two ? run.template operator()<32, 2>() : run.template operator()<32, 1>();
  if (size <= 48) return two ? run.template operator()<48, 2>() : run.template operator()<48, 1>();
  if (size <= 64) return two ? run.template operator()<64, 2>() : run.template operator()<64, 1>();
  if (size <= 96) return run.template operator()<96, 1>();
  return run.template operator()<128, 1>();
}

template <typename Kernel>
void launch_tiles(const Context& ctx, Kernel kernel, const AttentionArguments& arguments, const Sequences& sequences,
                  int own, int shared) {
  const dim3 grid(static_cast<unsigned>(arguments.heads), static_cast<unsigned>(sequences.count),
                  static_cast<unsigned>((sequences.longest + own - 1) / own));
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  launch_dependent(ctx, kernel, grid, attention_threads, static_cast<std::size_t>(shared), arguments);
}

template <typename Run>
void by_type(DType type, Run&& run) {
  if (type == DType::bf16) {
    run(bf16{});
  } else {
    run(float{});
  }
}

}  // namespace

void attention_forward(Context& ctx, const Tensor& qkv, const Sequences& sequences, int heads, bool causal, Tensor& out,
                       Tensor& lse) {
  if (qkv.dim(0) == 0) return;
  AttentionArguments arguments = arguments_of(qkv, sequences, heads, causal);
  arguments.result = out.raw();
  arguments.lse = lse.data<float>();
  if (fits_hopper(ctx, arguments)) return launch_hopper_forward(ctx, arguments, sequences);
  if (fits_tensor_cores(ctx, arguments)) {
    return by_head_size(ctx, arguments, sequences, [&]<int kHead, int kBlocks>() {
      using Shared = AttentionShared<kHead, kBlocks>;
      launch_tiles(ctx, attention_forward_kernel<kHead, kBlocks>, arguments, sequences, Shared::own, Shared::forward);
    });
  }
  by_type(ctx.compute, [&](auto zero) {
    const std::int64_t warps = qkv.dim(0) * heads;
    plain_attention_forward_kernel<decltype(zero)>
        <<<grid_for(warps, 4), 128, 0, ctx.cuda->stream>>>(arguments, static_cast<int>(sequences.count));
    SOME_CUDA_LAUNCHED();
  });
}

void attention_backward(Context& ctx, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                        const Sequences& sequences, int heads, bool causal, Tensor& dqkv) {
  if (qkv.dim(0) == 0) return;
  const ArenaScope scope(*ctx.arena);
  AttentionArguments arguments = arguments_of(qkv, sequences, heads, causal);
  arguments.out = out.raw();
  arguments.dout = dout.raw();
  arguments.result = dqkv.raw();
  arguments.lse = lse.data<float>();
  if (fits_hopper(ctx, arguments)) return launch_hopper_backward(ctx, arguments, sequences);
  Tensor delta = ctx.scratch({heads, qkv.dim(0)}, DType::f32);
  arguments.delta = delta.data<float>();
  if (fits_tensor_cores(ctx, arguments)) {
    return by_head_size(ctx, arguments, sequences, [&]<int kHead, int kBlocks>() {
      using Shared = AttentionShared<kHead, kBlocks>;
      launch_tiles(ctx, attention_queries_backward_kernel<kHead, kBlocks>, arguments, sequences, Shared::own,
                   Shared::backward);
      launch_tiles(ctx, attention_keys_backward_kernel<kHead, kBlocks>, arguments, sequences, Shared::own,
                   Shared::backward);
    });
  }
  const std::int64_t warps = qkv.dim(0) * heads;
  by_type(ctx.compute, [&](auto zero) {
    using T = decltype(zero);
    launch_dependent(ctx, delta_kernel<T>, grid_for(warps * delta_lanes, 256), 256, 0,
                     static_cast<const T*>(dout.raw()), static_cast<const T*>(out.raw()), arguments.tokens, heads,
                     arguments.head_size, delta.data<float>());
    plain_attention_backward_kernel<decltype(zero)>
        <<<grid_for(warps, 4), 128, 0, ctx.cuda->stream>>>(arguments, static_cast<int>(sequences.count));
    SOME_CUDA_LAUNCHED();
  });
}

void rope(Context& ctx, Tensor& qkv, const Tensor& positions, int heads, bool inverse) {
  const std::int64_t tokens = qkv.dim(0);
  const int head_size = static_cast<int>(qkv.dim(1) / 3 / heads);
  const std::int64_t work = tokens * (head_size / 2);
  if (work == 0) return;
  by_type(ctx.compute, [&](auto zero) {
    using T = decltype(zero);
    rope_kernel<<<grid_for(work, 256), 256, 0, ctx.cuda->stream>>>(
        static_cast<T*>(qkv.raw()), positions.data<std::int32_t>(), tokens, heads, head_size, inverse ? -1.f : 1.f);
    SOME_CUDA_LAUNCHED();
  });
}

void attention_cached(Context& ctx, const Tensor& qkv, const Tensor& slots, const Tensor& positions, int heads,
                      Tensor& cache, Tensor& out) {
  const std::int64_t rows = qkv.dim(0), capacity = cache.dim(1);
  if (rows == 0) return;
  if (const RowProducts* const by_row = row_products(ctx); by_row != nullptr && by_row->attention_on_gpu != nullptr) {
    if (by_row->attention_on_gpu(ctx, qkv, slots, positions, heads, cache, out)) return;
  }
  const int width = static_cast<int>(qkv.dim(1) / 3), head_size = width / heads;
  if (head_size > plain_head_limit) {
    bad_input(Code::size_unsupported,
              "attention on the GPU supports heads of at most {} columns (got {}); use more heads", plain_head_limit,
              head_size);
  }
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)));
  by_type(ctx.compute, [&](auto zero) {
    using T = decltype(zero);
    const T* const source = static_cast<const T*>(qkv.raw());
    T* const stored = static_cast<T*>(cache.raw());
    cache_store_kernel<<<grid_for(rows * 2 * width, 256), 256, 0, ctx.cuda->stream>>>(
        source, slots.data<std::int32_t>(), positions.data<std::int32_t>(), rows, width, capacity, stored);
    SOME_CUDA_LAUNCHED();
    cached_kernel<<<grid_for(rows * heads, 4), 128, 0, ctx.cuda->stream>>>(
        source, slots.data<std::int32_t>(), positions.data<std::int32_t>(), rows, heads, head_size, capacity, scale,
        stored, static_cast<T*>(out.raw()));
    SOME_CUDA_LAUNCHED();
  });
}

}  // namespace some::cuda
