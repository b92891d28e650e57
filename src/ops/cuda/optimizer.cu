// AdamW over the flat buffers in one launch: per parameter, 16 bytes are read and 12 written, plus 2 for the bf16 copy.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "ops/optimizer.h"

namespace some::cuda {
namespace {

constexpr int threads = 256;
constexpr int norm_blocks = 528;

__global__ void __launch_bounds__(threads) squares_kernel(const float* grad, std::int64_t count, double* partials) {
  wait_previous_kernel();
  __shared__ double shared[warp_size];
  const std::int64_t quads = count / 4;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x,
                     step = static_cast<std::int64_t>(gridDim.x) * threads;
  double sum = 0.0;
#pragma unroll 4
  for (std::int64_t i = first; i < quads; i += step) {
    const float4 g = reinterpret_cast<const float4*>(grad)[i];
    sum += static_cast<double>(g.x) * g.x + static_cast<double>(g.y) * g.y;
    sum += static_cast<double>(g.z) * g.z + static_cast<double>(g.w) * g.w;
  }
  if (first < count % 4) {
    const double g = grad[quads * 4 + first];
    sum += g * g;
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(1024) length_kernel(const double* partials, int count, float* norm) {
  wait_previous_kernel();
  __shared__ double shared[warp_size];
  const double sum = block_sum(threadIdx.x < count ? partials[threadIdx.x] : 0.0, shared);
  if (threadIdx.x == 0) norm[0] = static_cast<float>(sqrt(sum));
}

struct Factors {
  float keep, step_size, root_scale;  // see adam_rates
  float beta1, beta2;                 // decay rates of the running means
  float new1, new2;                   // 1 - beta, computed in double and then rounded
  float eps, clip;
  const float* rates;  // if not null, the first three are read from there instead
};

__device__ __forceinline__ void adam(const Factors& f, float scale, float g, float& value, float& first,
                                     float& second) {
  g *= scale;
  first = f.beta1 * first + f.new1 * g;
  second = f.beta2 * second + f.new2 * g * g;
  value = value * f.keep - f.step_size * first / (sqrtf(second) * f.root_scale + f.eps);
}

template <int WIDTH, typename Copy>
__global__ void __launch_bounds__(threads)
    adamw_kernel(float* value, Copy* compute, const float* grad, float* first, float* second, const float* norm,
                 std::int64_t vectors, Factors factors) {
  wait_previous_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= vectors) return;
  if (factors.rates != nullptr) {
    factors.keep = factors.rates[0];
    factors.step_size = factors.rates[1];
    factors.root_scale = factors.rates[2];
  }
  float scale = 1.0f;
  if (factors.clip > 0.0f) scale = fminf(1.0f, factors.clip / (norm[0] + 1e-6f));
  float v[WIDTH], g[WIDTH], m[WIDTH], s[WIDTH];
  load_elements<WIDTH>(value + i * WIDTH, v);
  load_elements<WIDTH>(grad + i * WIDTH, g);
  load_elements<WIDTH>(first + i * WIDTH, m);
  load_elements<WIDTH>(second + i * WIDTH, s);
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) adam(factors, scale, g[j], v[j], m[j], s[j]);
  store_elements<WIDTH>(value + i * WIDTH, v);
  store_elements<WIDTH>(first + i * WIDTH, m);
  store_elements<WIDTH>(second + i * WIDTH, s);
  if (compute != nullptr) store_elements<WIDTH>(compute + i * WIDTH, v);
}

}  // namespace

void gradient_norm(Context& ctx, const Tensor& grad, Tensor& norm) {
  const std::int64_t count = grad.elements();
  const ArenaScope scope(*ctx.arena);
  double* partials = ctx.scratch({norm_blocks}, DType::f64).data<double>();
  if (!aligned16(grad.raw())) failed(Code::internal, "gradient_norm: the flat gradient does not start on 16 bytes");
  launch_dependent(ctx, squares_kernel, norm_blocks, threads, 0, floats(grad), count, partials);
  launch_dependent(ctx, length_kernel, 1, 1024, 0, partials, norm_blocks, floats(norm));
}

void adamw_step(Context& ctx, Tensor& value, Tensor& compute, const Tensor& grad, Tensor& first, Tensor& second,
                const Tensor& norm, const AdamSettings& settings) {
  const std::int64_t count = value.elements();
  if (count == 0) return;
  const std::array<double, 3> rates = adam_rates(settings);
  Factors factors;
  factors.rates = settings.rates ? floats(settings.rates) : nullptr;
  factors.keep = static_cast<float>(rates[0]);
  factors.step_size = static_cast<float>(rates[1]);
  factors.root_scale = static_cast<float>(rates[2]);
  factors.beta1 = static_cast<float>(settings.beta1);
  factors.beta2 = static_cast<float>(settings.beta2);
  factors.new1 = static_cast<float>(1.0 - settings.beta1);
  factors.new2 = static_cast<float>(1.0 - settings.beta2);
  factors.eps = static_cast<float>(settings.eps);
  factors.clip = static_cast<float>(settings.clip);
  const float* lengths = norm ? floats(norm) : nullptr;
  if (lengths == nullptr) factors.clip = 0.0f;
  const bool copies = compute && compute.raw() != value.raw();
  with_real_type(copies ? compute.dtype() : DType::bf16, "AdamW", [&](auto tag) {
    using Copy = decltype(tag);
    Copy* copy = copies ? elements_of<Copy>(compute) : nullptr;
    const auto launch = [&](auto kernel, std::int64_t begin, std::int64_t groups) {
      if (groups == 0) return;
      launch_dependent(ctx, kernel, grid_for(groups, threads), threads, 0, floats(value) + begin,
                       copies ? copy + begin : nullptr, floats(grad) + begin, floats(first) + begin,
                       floats(second) + begin, lengths, groups, factors);
    };
    const bool vectors = all_aligned16(value.raw(), grad.raw(), first.raw(), second.raw(), copy);
    const std::int64_t quads = vectors ? count / 4 : 0;
    launch(adamw_kernel<4, Copy>, 0, quads);
    launch(adamw_kernel<1, Copy>, quads * 4, count - quads * 4);
  });
}

}  // namespace some::cuda
