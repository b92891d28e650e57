// Exponential and GELU that the compiler can vectorize: no branch, no table, no library call in float. In double, where
// only exactness matters, the library's functions are used.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace some::cpu {

// Returns e^x to 2 units in the last place; 0 below the smallest normal number; NaN stays NaN.
inline float fast_exp(float x) {
  constexpr float lowest = -87.3f, highest = 88.3f;
  constexpr float rounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, left in the low bits
  float y = x < lowest ? lowest : x;
  y = y > highest ? highest : y;
  const float shifted = std::fma(y, 1.44269504089f, rounder);
  const float whole = shifted - rounder;
  float r = std::fma(whole, -0.693145751953125f, y);  // ln 2 in two parts; |r| <= ln(2)/2
  r = std::fma(whole, -1.42860682030941723e-6f, r);
  float p = 0.001392617612f;  // e^r = 1 + r + r^2 p(r), p interpolated at Chebyshev points (relative error 1e-8)
  p = std::fma(p, r, 0.008363173075f);
  p = std::fma(p, r, 0.04166655466f);
  p = std::fma(p, r, 0.1666657703f);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r * r, r) + 1.0f;
  // Conditionals select only between constants or integers: the compiler does not vectorize a conditional that skips
  // arithmetic.
  const std::int32_t power = (std::bit_cast<std::int32_t>(shifted) << 23) + 0x3F800000;
  return p * std::bit_cast<float>(x < lowest ? 0 : power);
}
inline double fast_exp(double x) { return std::exp(x); }

// The normal distribution at x: GELU(x) = x * cumulative and GELU'(x) = cumulative + x * density.
template <typename T>
struct NormalDistribution {
  T cumulative, density;
};

inline NormalDistribution<float> normal_distribution(float x) {
  const float gauss = fast_exp(-0.5f * x * x);
  // erfc(z) e^(z^2) = t q(t), t = 1/(1 + 0.4 z), z = |x|/sqrt(2); q interpolated at Chebyshev points: error 7e-9.
  const float t = 1.0f / std::fma(std::fabs(x), 0.4f * 0.70710678118f, 1.0f);
  float q = 0.07730757511f;
  q = std::fma(q, t, -0.4089818668f);
  q = std::fma(q, t, 0.7136008669f);
  q = std::fma(q, t, -0.406346427f);
  q = std::fma(q, t, 0.4299756849f);
  q = std::fma(q, t, 0.1314977265f);
  q = std::fma(q, t, 0.2381441705f);
  q = std::fma(q, t, 0.2248022656f);
  const float tail = 0.5f * gauss * (t * q);  // cumulative(-|x|)
  return {(x < 0.0f ? 0.0f : 1.0f) - std::copysign(tail, x), gauss * 0.3989422804f};
}
inline NormalDistribution<double> normal_distribution(double x) {
  return {0.5 * std::erfc(-x * 0.70710678118654752440), std::exp(-0.5 * x * x) * 0.39894228040143267794};
}

// Computes y = GELU(x); may work in place.
template <typename T>
void gelu(const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * normal_distribution(x[i]).cumulative;
}

// Computes dy = dy * GELU'(x).
template <typename T>
void gelu_gradient(const T* x, T* dy, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const NormalDistribution<T> law = normal_distribution(x[i]);
    dy[i] *= law.cumulative + x[i] * law.density;
  }
}

template <typename T>
T dot(const T* a, const T* b, std::int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Computes y += factor * x.
template <typename T>
void add_scaled(T factor, const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

template <typename T>
T largest(const T* x, std::int64_t n) {
  T value = x[0];
#pragma omp simd reduction(max : value)
  for (std::int64_t i = 0; i < n; ++i) value = x[i] > value ? x[i] : value;
  return value;
}

// Replaces x by e^(x - shift) and returns the sum.
template <typename T>
T exp_sum(T* x, std::int64_t n, T shift) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = fast_exp(x[i] - shift);
    sum += x[i];
  }
  return sum;
}

template <typename T>
void softmax(T* x, std::int64_t n) {
  const T scale = T(1) / exp_sum(x, n, largest(x, n));
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace some::cpu
