#include "ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/support.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace some::cpu {
namespace {

constexpr std::int64_t grain = 16384;

template <typename T>
double sum_of_squares(const T* x, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <typename T>
void norm_of(Context& ctx, const Tensor& grad, Tensor& norm) {
  const std::int64_t count = grad.elements();
  const T* g = grad.data<T>();
  std::vector<double> sums(static_cast<std::size_t>((count + grain - 1) / grain));
  parallel_chunks(*ctx.threads, count, grain, [&](std::int64_t begin, std::int64_t end) {
    sums[static_cast<std::size_t>(begin / grain)] = sum_of_squares(g + begin, end - begin);
  });
  norm.data<T>()[0] = static_cast<T>(std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0)));
}

template <typename T>
struct AdamConstants {
  AdamConstants(const AdamSettings& s, double norm)
      : shrink(static_cast<T>(s.clip > 0 ? std::min(1.0, s.clip / (norm + 1e-6)) : 1.0)),
        beta1(static_cast<T>(s.beta1)),
        beta2(static_cast<T>(s.beta2)),
        rest1(static_cast<T>(1.0 - s.beta1)),
        rest2(static_cast<T>(1.0 - s.beta2)),
        epsilon(static_cast<T>(s.eps)) {
    const std::array<double, 3> rates = adam_rates(s);
    keep = s.rates ? s.rates.data<T>()[0] : static_cast<T>(rates[0]);
    rate = s.rates ? s.rates.data<T>()[1] : static_cast<T>(rates[1]);
    root = s.rates ? s.rates.data<T>()[2] : static_cast<T>(rates[2]);
  }
  T shrink, beta1, beta2, rest1, rest2, epsilon, keep, rate, root;
};

// Written with intrinsics because the compiler does not vectorize a square root that may set errno.
void square_roots(const float* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX__)
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_sqrt_ps(_mm256_loadu_ps(x + i)));
#endif
  for (; i < n; ++i) y[i] = std::sqrt(x[i]);
}
void square_roots(const double* x, double* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = std::sqrt(x[i]);
}

constexpr std::int64_t adam_block = 512;
template <typename T>
void adam_step(const AdamConstants<T>& with, std::int64_t n, const T* g, T* value, T* first, T* second) {
  T roots[adam_block];
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T slope = g[i] * with.shrink;
    first[i] = with.beta1 * first[i] + with.rest1 * slope;
    second[i] = with.beta2 * second[i] + with.rest2 * slope * slope;
  }
  square_roots(second, roots, n);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    value[i] = value[i] * with.keep - with.rate * first[i] / (roots[i] * with.root + with.epsilon);
  }
}

template <typename T>
void step_of(Context& ctx, Tensor& value, Tensor& compute, const Tensor& grad, Tensor& first, Tensor& second,
             const Tensor& norm, const AdamSettings& settings) {
  const AdamConstants<T> constants(settings, static_cast<double>(norm.data<T>()[0]));
  const T* g = grad.data<T>();
  T* v = value.data<T>();
  T* m1 = first.data<T>();
  T* m2 = second.data<T>();
  T* copy = compute && compute.raw() != value.raw() ? compute.data<T>() : nullptr;
  parallel_chunks(*ctx.threads, value.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += adam_block) {
      adam_step(constants, std::min(adam_block, end - i), g + i, v + i, m1 + i, m2 + i);
    }
    if (copy != nullptr) std::copy(v + begin, v + end, copy + begin);
  });
}

}  // namespace

void gradient_norm(Context& ctx, const Tensor& grad, Tensor& norm) {
  with_precision(ctx, [&](auto zero) { norm_of<decltype(zero)>(ctx, grad, norm); });
}

void adamw_step(Context& ctx, Tensor& value, Tensor& compute, const Tensor& grad, Tensor& first, Tensor& second,
                const Tensor& norm, const AdamSettings& settings) {
  with_precision(ctx,
                 [&](auto zero) { step_of<decltype(zero)>(ctx, value, compute, grad, first, second, norm, settings); });
}

}  // namespace some::cpu
