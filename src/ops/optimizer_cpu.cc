#include "ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/support_cpu.h"

namespace some::cpu {
namespace {

constexpr std::int64_t grain = 16384;

template <typename T>
void norm_of(const Tensor& grad, Tensor& norm) {
  const std::int64_t count = grad.elements();
  const T* g = grad.data<T>();
  std::vector<double> sums(static_cast<std::size_t>((count + grain - 1) / grain));
  parallel_chunks(count, grain, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = begin; i < end; ++i) sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    sums[static_cast<std::size_t>(begin / grain)] = sum;
  });
  norm.data<T>()[0] = static_cast<T>(std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0)));
}

template <typename T>
void step_of(Tensor& value, Tensor& compute, const Tensor& grad, Tensor& first, Tensor& second, const Tensor& norm,
             const AdamSettings& settings) {
  const double length = static_cast<double>(norm.data<T>()[0]);
  const double shrink = settings.clip > 0 ? std::min(1.0, settings.clip / (length + 1e-6)) : 1.0;
  const double steps = static_cast<double>(settings.step);
  const T factor = static_cast<T>(shrink);
  const T keep = static_cast<T>(1.0 - settings.lr * settings.weight_decay);
  const T beta1 = static_cast<T>(settings.beta1), beta2 = static_cast<T>(settings.beta2);
  const T rest1 = static_cast<T>(1.0 - settings.beta1), rest2 = static_cast<T>(1.0 - settings.beta2);
  const T rate = static_cast<T>(settings.lr / (1.0 - std::pow(settings.beta1, steps)));
  const T root = static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(settings.beta2, steps)));
  const T epsilon = static_cast<T>(settings.eps);
  const T* g = grad.data<T>();
  T* v = value.data<T>();
  T* m1 = first.data<T>();
  T* m2 = second.data<T>();
  T* copy = compute && compute.raw() != value.raw() ? compute.data<T>() : nullptr;
  parallel_chunks(value.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const T slope = g[i] * factor;
      m1[i] = beta1 * m1[i] + rest1 * slope;
      m2[i] = beta2 * m2[i] + rest2 * slope * slope;
      v[i] = v[i] * keep - rate * m1[i] / (std::sqrt(m2[i]) * root + epsilon);
    }
    if (copy != nullptr) std::copy(v + begin, v + end, copy + begin);
  });
}

}  // namespace

void gradient_norm(Context& ctx, const Tensor& grad, Tensor& norm) {
  with_precision(ctx, [&](auto zero) { norm_of<decltype(zero)>(grad, norm); });
}

void adamw_step(Context& ctx, Tensor& value, Tensor& compute, const Tensor& grad, Tensor& first, Tensor& second,
                const Tensor& norm, const AdamSettings& settings) {
  with_precision(ctx, [&](auto zero) { step_of<decltype(zero)>(value, compute, grad, first, second, norm, settings); });
}

}  // namespace some::cpu
