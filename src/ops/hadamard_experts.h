// Experts without stored weights, some.init = "hadamard" (spec 3, "Hadamard experts"): their matrices, and the random
// signs that define them. Plain data, so that it can be passed to kernels by value.
//
// With P the next power of two >= d, H the UNNORMALIZED Hadamard matrix of size P in Sylvester's order, H[i][j] =
// (-1)^popcount(i & j), and D_m diagonal matrices of signs, block b of expert e is
//
//   B(e, b) = H D_(n-1) ... H D_1 H D_0        (n transforms, 1 to 3)
//
// w1[e] is scale1 times the blocks B(e, 0), B(e, 1), ... on top of each other, cut to f rows and d columns; w2[e] is
// scale2 times the transposed blocks, with signs of their own, next to each other, cut to d rows and f columns:
//
//   (w1 x)[b*P + i] = scale1 * (B x')[i]                   x' = x padded with zeros to P numbers
//   (w2 g)[j]       = scale2 * sum over b of (B^T g_b)[j]  g_b = g[b*P ... b*P + P - 1], 0 from f on
//   B^T             = D_0 H D_1 H ... D_(n-1) H            because H and D are symmetric
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.h"
#include "tensor/tensor.h"

namespace some {

// Sizes of both matrices of an expert, and the location of their signs.
struct HadamardSizes {
  int d = 0, f = 0;
  int transforms = 1;

  SOME_HD int size() const {  // P
    int p = 1;
    while (p < d) p *= 2;
    return p;
  }
  SOME_HD int blocks() const { return (f + size() - 1) / size(); }
  // 64-bit words of one vector of P signs. With P < 64 a vector takes one word and uses its low P bits.
  SOME_HD int words() const { return (size() + 63) / 64; }
  // Number of the first word of D_m of block b of expert e. Position j of the vector is bit j % 64 of the (j / 64)-th
  // word from there; a 1 is the sign -1.
  SOME_HD std::uint64_t first_word(std::uint64_t expert, int block, int m) const {
    return ((expert * static_cast<std::uint64_t>(blocks()) + static_cast<std::uint64_t>(block)) *
                static_cast<std::uint64_t>(transforms) +
            static_cast<std::uint64_t>(m)) *
           static_cast<std::uint64_t>(words());
  }
  std::uint64_t words_per_expert() const { return first_word(1, 0, 0); }
  // Factors of the unnormalized transforms: rows have the expected length that `default` has, 1/sqrt(3).
  double scale1() const { return scale(d); }
  double scale2() const { return scale(f); }

 private:
  double scale(int inputs) const {
    return std::pow(static_cast<double>(size()), -0.5 * (transforms - 1)) / std::sqrt(3.0 * inputs);
  }
};

// The signs of one matrix of all experts of a layer. Word n is number n of a random stream; nothing is computed per
// expert in advance. If all words of the layer take at most hadamard_cache_bytes, they are also in memory.
struct HadamardSigns {
  RandomStream stream;
  const std::uint64_t* cached = nullptr;  // on the device; null: not cached

  SOME_HD std::uint64_t word(std::uint64_t n) const { return cached != nullptr ? cached[n] : stream.bits64(n); }
};

inline constexpr std::size_t hadamard_cache_bytes = std::size_t{1} << 20;  // per layer and matrix

// The experts of one layer. False as a bool: the layer has ordinary matrices.
struct HadamardExperts {
  int experts = 0;
  HadamardSizes sizes{};
  bool has_w2 = false;
  RandomStream stream1{}, stream2{};
  Tensor cached1{}, cached2{};  // i64 [words of all experts], or empty

  explicit operator bool() const { return experts > 0; }
  HadamardSigns signs1() const { return {stream1, words_of(cached1)}; }
  HadamardSigns signs2() const { return {stream2, words_of(cached2)}; }

 private:
  static const std::uint64_t* words_of(const Tensor& cached) {
    return cached ? reinterpret_cast<const std::uint64_t*>(cached.data<std::int64_t>()) : nullptr;
  }
};

}  // namespace some
