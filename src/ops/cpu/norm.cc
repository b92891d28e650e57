#include "ops/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/support.h"

namespace some::cpu {
namespace {

constexpr double epsilon = 1e-5;
constexpr std::int64_t row_grain = 64;

template <typename T>
void forward(Context& ctx, const Tensor& x, const Tensor* addend, const Param& weight, const Param& bias, Tensor& sum,
             Tensor& y, Tensor& mean, Tensor& rstd) {
  const std::int64_t rows = x.dim(0), d = x.dim(1);
  const T* in = x.data<T>();
  const T* more = addend != nullptr ? addend->data<T>() : nullptr;
  const T* scale = weight.value.data<T>();
  const T* shift = bias.value.data<T>();
  T* total = sum.data<T>();
  T* out = y.data<T>();
  T* means = mean.data<T>();
  T* rstds = rstd.data<T>();
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* source = in + row * d;
      T* s = total + row * d;
      T* target = out + row * d;
      if (more != nullptr) {
        const T* other = more + row * d;
#pragma omp simd
        for (std::int64_t i = 0; i < d; ++i) s[i] = source[i] + other[i];
      } else if (s != source) {
        for (std::int64_t i = 0; i < d; ++i) s[i] = source[i];
      }
      T added = 0, squares = 0;
#pragma omp simd reduction(+ : added)
      for (std::int64_t i = 0; i < d; ++i) added += s[i];
      const T center = added / static_cast<T>(d);
#pragma omp simd reduction(+ : squares)
      for (std::int64_t i = 0; i < d; ++i) squares += (s[i] - center) * (s[i] - center);
      const T inverse = T(1) / std::sqrt(squares / static_cast<T>(d) + static_cast<T>(epsilon));
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) target[i] = (s[i] - center) * inverse * scale[i] + shift[i];
      means[row] = center;
      rstds[row] = inverse;
    }
  });
}

// With n = (sum - mean) * rstd and g = dy * weight: dsum = rstd * (g - mean(g) - n * mean(g n)).
template <typename T>
void backward(Context& ctx, const Tensor& dy, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
              const Param& weight, const Param& bias, const Tensor* extra, Tensor& dsum, Tensor* copy) {
  const std::int64_t rows = dy.dim(0), d = dy.dim(1), chunks = (rows + row_grain - 1) / row_grain;
  const T* gradient = dy.data<T>();
  const T* input = sum.data<T>();
  const T* means = mean.data<T>();
  const T* rstds = rstd.data<T>();
  const T* scale = weight.value.data<T>();
  const T* more = extra != nullptr ? extra->data<T>() : nullptr;
  T* out = dsum.data<T>();
  T* twin = copy != nullptr ? copy->data<T>() : nullptr;
  ArenaScope scope(*ctx.arena);
  T* scale_sums = ctx.scratch({chunks, d}).template data<T>();
  T* shift_sums = ctx.scratch({chunks, d}).template data<T>();
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    T* dscale = scale_sums + begin / row_grain * d;
    T* dshift = shift_sums + begin / row_grain * d;
    for (std::int64_t i = 0; i < d; ++i) dscale[i] = dshift[i] = T(0);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* g = gradient + row * d;
      const T* s = input + row * d;
      const T center = means[row], inverse = rstds[row];
      T sum_g = 0, sum_gn = 0;
#pragma omp simd reduction(+ : sum_g, sum_gn)
      for (std::int64_t i = 0; i < d; ++i) {
        const T normal = (s[i] - center) * inverse;
        dscale[i] += g[i] * normal;
        dshift[i] += g[i];
        sum_g += g[i] * scale[i];
        sum_gn += g[i] * scale[i] * normal;
      }
      const T mean_g = sum_g / static_cast<T>(d), mean_gn = sum_gn / static_cast<T>(d);
      const T* other = more != nullptr ? more + row * d : nullptr;
      T* target = out + row * d;
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) {
        const T normal = (s[i] - center) * inverse;
        const T value = inverse * (g[i] * scale[i] - mean_g - normal * mean_gn);
        target[i] = other != nullptr ? value + other[i] : value;
      }
      if (twin != nullptr) std::copy_n(target, d, twin + row * d);
    }
  });
  if (weight.grad) add_partials(ctx, scale_sums, chunks, d, weight.grad.data<T>());
  if (bias.grad) add_partials(ctx, shift_sums, chunks, d, bias.grad.data<T>());
}

}  // namespace

void add_norm_forward(Context& ctx, const Tensor& x, const Tensor* addend, const Param& weight, const Param& bias,
                      Tensor& sum, Tensor& y, Tensor& mean, Tensor& rstd) {
  with_precision(ctx, [&](auto zero) { forward<decltype(zero)>(ctx, x, addend, weight, bias, sum, y, mean, rstd); });
}

void norm_backward(Context& ctx, const Tensor& dy, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
                   const Param& weight, const Param& bias, const Tensor* extra, Tensor& dsum, Tensor* copy) {
  with_precision(
      ctx, [&](auto zero) { backward<decltype(zero)>(ctx, dy, sum, mean, rstd, weight, bias, extra, dsum, copy); });
}

}  // namespace some::cpu
