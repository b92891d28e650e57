// Low-rank learning of experts: effective weights, and gradients of the two factors. Both are small next to the
// experts' products.
#include "ops/cuda_primitives.cuh"
#include "ops/cuda_state.h"
#include "ops/experts.h"

namespace some::ops::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(256)
    merge_kernel(const T* __restrict__ frozen, const float* __restrict__ a, const float* __restrict__ b, int out,
                 int in, int rank, T* __restrict__ effective) {
  const int i = blockIdx.x * 32 + (threadIdx.x & 31), o = blockIdx.y * 8 + threadIdx.x / 32;
  if (i >= in || o >= out) return;
  const std::int64_t expert = blockIdx.z;
  const std::int64_t at = (expert * out + o) * in + i;
  float sum = to_f32(frozen[at]);
  for (int r = 0; r < rank; ++r) sum = fmaf(b[(expert * out + o) * rank + r], a[(expert * rank + r) * in + i], sum);
  effective[at] = from_f32<T>(sum);
}

__global__ void __launch_bounds__(256) project_a_kernel(const float* __restrict__ dw, const float* __restrict__ b,
                                                        int out, int in, int rank, float* __restrict__ grad) {
  const int i = blockIdx.x * 32 + (threadIdx.x & 31), r = blockIdx.y * 8 + threadIdx.x / 32;
  if (i >= in || r >= rank) return;
  const std::int64_t expert = blockIdx.z;
  float sum = 0.f;
  for (int o = 0; o < out; ++o) sum = fmaf(b[(expert * out + o) * rank + r], dw[(expert * out + o) * in + i], sum);
  grad[(expert * rank + r) * in + i] += sum;
}

// One warp an entry of b's gradient.
__global__ void __launch_bounds__(256) project_b_kernel(const float* __restrict__ dw, const float* __restrict__ a,
                                                        int out, int in, int rank, float* __restrict__ grad) {
  const int entry = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x & 31;
  if (entry >= out * rank) return;
  const std::int64_t expert = blockIdx.z, o = entry / rank, r = entry % rank;
  float sum = 0.f;
  for (int i = lane; i < in; i += 32) sum = fmaf(dw[(expert * out + o) * in + i], a[(expert * rank + r) * in + i], sum);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) grad[(expert * out + o) * rank + r] += sum;
}

unsigned parts(std::int64_t size, int part) { return static_cast<unsigned>((size + part - 1) / part); }

}  // namespace

void lora_merge(Context& ctx, const Tensor& frozen, const Tensor& a, const Tensor& b, Tensor& effective) {
  const std::int64_t experts = frozen.dim(0), out = frozen.dim(1), in = frozen.dim(2);
  const dim3 grid(parts(in, 32), parts(out, 8), static_cast<unsigned>(experts));
  const auto launch = [&](auto zero) {
    using T = decltype(zero);
    merge_kernel<<<grid, 256, 0, ctx.cuda->stream>>>(static_cast<const T*>(frozen.raw()), a.data<float>(),
                                                     b.data<float>(), static_cast<int>(out), static_cast<int>(in),
                                                     static_cast<int>(a.dim(1)), static_cast<T*>(effective.raw()));
    SOME_CUDA_LAUNCHED();
  };
  if (frozen.dtype() == DType::bf16) {
    launch(bf16{});
  } else {
    launch(float{});
  }
}

void lora_project(Context& ctx, const Tensor& dw, const Param& a, const Param& b) {
  const std::int64_t experts = dw.dim(0), out = dw.dim(1), in = dw.dim(2), rank = a.value.dim(1);
  const dim3 grid_a(parts(in, 32), parts(rank, 8), static_cast<unsigned>(experts));
  project_a_kernel<<<grid_a, 256, 0, ctx.cuda->stream>>>(dw.data<float>(), b.value.data<float>(), static_cast<int>(out),
                                                         static_cast<int>(in), static_cast<int>(rank),
                                                         a.grad.data<float>());
  SOME_CUDA_LAUNCHED();
  const dim3 grid_b(parts(out * rank, 8), 1, static_cast<unsigned>(experts));
  project_b_kernel<<<grid_b, 256, 0, ctx.cuda->stream>>>(dw.data<float>(), a.value.data<float>(), static_cast<int>(out),
                                                         static_cast<int>(in), static_cast<int>(rank),
                                                         b.grad.data<float>());
  SOME_CUDA_LAUNCHED();
}

}  // namespace some::ops::cuda
