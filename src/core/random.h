// Counter-based random numbers: the n-th number of a stream is a pure function of (seed, name, n), so it does not
// depend on the order of draws, the number of threads or the device. Philox 4x32-10 (Salmon et al., 2011).
//
// The same functions compile for the CPU and the GPU. uniform() and normal() use only operations that IEEE 754 rounds
// exactly (+, *, /, sqrt and an explicit fused multiply-add), so both give the same bits. Two constraints follow: no
// library log or cos in this file, and no file that includes it may be compiled with fast-math or contraction.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#if defined(__CUDACC__)
#define SOME_HD __host__ __device__
#else
#define SOME_HD
#endif

namespace some {

struct Philox {
  std::uint32_t v[4];
};

SOME_HD inline Philox philox(std::uint64_t key, std::uint64_t counter, std::uint64_t stream = 0) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(counter), c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return Philox{{c0, c1, c2, c3}};
}

// Returns a well-mixed 64-bit hash of a 64-bit number (the finalizer of splitmix64).
SOME_HD inline std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Returns the natural logarithm of a positive normal double, from exactly rounded operations only: x = m * 2^e with m
// in [sqrt(1/2), sqrt(2)), then the series of 2 artanh((m-1)/(m+1)). Error below 2e-16 relative to max(1, |log x|).
SOME_HD inline double exact_log(double x) {
  union {
    double d;
    std::uint64_t u;
  } bits{x};
  int e = static_cast<int>((bits.u >> 52) & 0x7FF) - 1022;
  bits.u = (bits.u & 0x000FFFFFFFFFFFFFull) | 0x3FE0000000000000ull;  // m in [1/2, 1)
  double m = bits.d;
  if (m < 0.70710678118654752440) {
    m = m + m;
    e -= 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 23.0;
  p = fma(p, z, 1.0 / 21.0);
  p = fma(p, z, 1.0 / 19.0);
  p = fma(p, z, 1.0 / 17.0);
  p = fma(p, z, 1.0 / 15.0);
  p = fma(p, z, 1.0 / 13.0);
  p = fma(p, z, 1.0 / 11.0);
  p = fma(p, z, 1.0 / 9.0);
  p = fma(p, z, 1.0 / 7.0);
  p = fma(p, z, 1.0 / 5.0);
  p = fma(p, z, 1.0 / 3.0);
  p = fma(p, z, 1.0);
  return fma(static_cast<double>(e), 0.69314718055994530942, 2.0 * s * p);
}

// Computes sin and cos of 2*pi*t for t in [0, 1), from exactly rounded operations only.
SOME_HD inline void exact_sincos_turn(double t, double* sine, double* cosine) {
  // Reduce to an eighth of a turn: t = q/4 + r, |r| <= 1/8.
  const double scaled = t * 4.0;
  const int q = static_cast<int>(scaled + 0.5);  // NOLINT(bugprone-incorrect-roundings): t >= 0, same on a GPU
  const double r = (scaled - static_cast<double>(q)) * 1.57079632679489661923;  // radians, |r| <= pi/4
  const double z = r * r;
  double s = -1.0 / 1307674368000.0;
  s = fma(s, z, 1.0 / 6227020800.0);
  s = fma(s, z, -1.0 / 39916800.0);
  s = fma(s, z, 1.0 / 362880.0);
  s = fma(s, z, -1.0 / 5040.0);
  s = fma(s, z, 1.0 / 120.0);
  s = fma(s, z, -1.0 / 6.0);
  s = fma(s * z, r, r);
  double c = 1.0 / 20922789888000.0;
  c = fma(c, z, -1.0 / 87178291200.0);
  c = fma(c, z, 1.0 / 479001600.0);
  c = fma(c, z, -1.0 / 3628800.0);
  c = fma(c, z, 1.0 / 40320.0);
  c = fma(c, z, -1.0 / 720.0);
  c = fma(c, z, 1.0 / 24.0);
  c = fma(c, z, -0.5);
  c = fma(c, z, 1.0);
  switch (q & 3) {
    case 0:
      *sine = s;
      *cosine = c;
      break;
    case 1:
      *sine = c;
      *cosine = -s;
      break;
    case 2:
      *sine = -s;
      *cosine = -c;
      break;
    default:
      *sine = -c;
      *cosine = s;
      break;
  }
}

// One random stream: plain data, so that it can be passed to a kernel by value.
struct RandomStream {
  std::uint64_t key = 0;
  bool operator==(const RandomStream&) const = default;

  SOME_HD std::uint32_t bits32(std::uint64_t n) const {
    const Philox block = philox(key, n >> 2);
    return block.v[n & 3];
  }
  SOME_HD std::uint64_t bits64(std::uint64_t n) const {
    const Philox block = philox(key, n >> 1);
    const int half = static_cast<int>(n & 1) * 2;
    return (static_cast<std::uint64_t>(block.v[half + 1]) << 32) | block.v[half];
  }
  // Uniform in [0, 1) with 24 random bits, which is exact in float and double.
  SOME_HD float uniform(std::uint64_t n) const { return static_cast<float>(bits32(n) >> 8) * 5.9604644775390625e-08f; }
  // Uniform in (-1, 1), symmetric about 0, never exactly 0 or +-1: (2b+1)/2^24 - 1 with b of 24 bits. Exact in float.
  SOME_HD float symmetric(std::uint64_t n) const {
    const std::int32_t b = static_cast<std::int32_t>(bits32(n) >> 8);  // 24 bits
    return static_cast<float>(2 * b + 1 - 16777216) * 5.9604644775390625e-08f;
  }
  // Standard normal: Box-Muller in double precision, two numbers per block, rounded to float.
  SOME_HD float normal(std::uint64_t n) const {
    const Philox block = philox(key, n >> 1);
    const double u = (static_cast<double>(block.v[0]) + 0.5) * 2.3283064365386962890625e-10;
    const double t = static_cast<double>(block.v[1]) * 2.3283064365386962890625e-10;
    const double radius = sqrt(-2.0 * exact_log(u));
    double s, c;
    exact_sincos_turn(t, &s, &c);
    return static_cast<float>(radius * ((n & 1) ? s : c));
  }
  // Uniform integer in [0, bound), bound < 2^32, by multiplication (bias below 2^-32).
  SOME_HD std::uint32_t below(std::uint64_t n, std::uint32_t bound) const {
    return static_cast<std::uint32_t>((bits64(n) >> 32) * bound >> 32);
  }
};

// Returns the stream for one purpose of a run, e.g. random_stream(seed, "layers.3.attn.qkv.weight").
inline RandomStream random_stream(std::uint64_t seed, std::string_view name) {
  std::uint64_t h = mix64(seed);
  for (const char c : name) h = mix64(h ^ static_cast<unsigned char>(c));
  return RandomStream{mix64(h ^ name.size())};
}

}  // namespace some
