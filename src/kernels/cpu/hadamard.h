// Walsh-Hadamard transforms with random signs, of one row at a time (spec 3, "Hadamard experts"), in Sylvester's order,
// unnormalized. Blocks of 64 numbers are transformed in registers; each further pass over the row computes three stages
// at once, so a row of 512 is read and written twice. The speed is limited by additions (P log2 P), not by the cache.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/random.h"

namespace some::cpu {

#if defined(__AVX2__)
inline constexpr int hadamard_vector_bytes = 32;
#else
inline constexpr int hadamard_vector_bytes = 16;
#endif

// Computes out[0..count) = the words of a stream from number `first` on.
inline void random_words(const RandomStream& stream, std::uint64_t first, std::int64_t count, std::uint64_t* out) {
  std::int64_t i = 0;
  if (count > 0 && (first & 1) != 0) out[i++] = stream.bits64(first);
  const std::uint64_t block = (first + static_cast<std::uint64_t>(i)) >> 1;
  const std::int64_t pairs = (count - i) / 2;  // two words share one random block
#pragma omp simd
  for (std::int64_t p = 0; p < pairs; ++p) {
    const Philox four = philox(stream.key, block + static_cast<std::uint64_t>(p));
    out[i + 2 * p] = (static_cast<std::uint64_t>(four.v[1]) << 32) | four.v[0];
    out[i + 2 * p + 1] = (static_cast<std::uint64_t>(four.v[3]) << 32) | four.v[2];
  }
  if (i + 2 * pairs < count) out[count - 1] = stream.bits64(first + static_cast<std::uint64_t>(count - 1));
}

template <typename T>
class Hadamard {
 public:
  static constexpr int group = 64;  // numbers transformed in registers: those of one word of signs

  // Computes out = H D in, with D the signs in `words`; may work in place.
  static void transform(const T* in, const std::uint64_t* words, T* out, std::int64_t size) {
    if (size < group) return small_transform(in, words, out, size);
    for (std::int64_t at = 0; at < size; at += group) {
      Vector r[vectors];
      load(in + at, r);
      flip(words[at / group], r);
      butterflies(r);
      for (int v = 0; v < vectors; ++v) store(out + at + v * lanes, r[v]);
    }
    stages(out, size, [](T* to, std::int64_t, Vector value) { store(to, value); });
  }

  // Computes sum += D H x (Add) or sum = D H x; overwrites x, which may be sum without Add.
  template <bool Add>
  static void transposed(T* x, const std::uint64_t* words, T* sum, std::int64_t size) {
    if (size < group) return small_transposed<Add>(x, words, sum, size);
    const auto finish = [&](T*, std::int64_t at, Vector value) {
      value = flipped(static_cast<Bits>(words[at / group] >> (at % group)), value);
      if constexpr (Add) value += loaded(sum + at);
      store(sum + at, value);
    };
    for (std::int64_t at = 0; at < size; at += group) {
      Vector r[vectors];
      load(x + at, r);
      butterflies(r);
      for (int v = 0; v < vectors; ++v) {
        if (size == group)
          finish(x, at + v * lanes, r[v]);
        else
          store(x + at + v * lanes, r[v]);
      }
    }
    stages(x, size, finish);
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  static constexpr int lanes = hadamard_vector_bytes / static_cast<int>(sizeof(T)), vectors = group / lanes;
  typedef T Vector __attribute__((vector_size(hadamard_vector_bytes)));
  typedef T Loose __attribute__((vector_size(hadamard_vector_bytes), aligned(sizeof(T)), may_alias));
  typedef Bits Mask __attribute__((vector_size(hadamard_vector_bytes)));
  using Lanes = std::make_integer_sequence<int, lanes>;

  static Vector loaded(const T* from) { return *reinterpret_cast<const Loose*>(from); }
  static void load(const T* from, Vector* r) {
#pragma GCC unroll 32
    for (int v = 0; v < vectors; ++v) r[v] = loaded(from + v * lanes);
  }
  static void store(T* to, Vector value) { *reinterpret_cast<Loose*>(to) = value; }

  template <int... I>
  static constexpr Mask shifts(std::integer_sequence<int, I...>) {
    return Mask{static_cast<Bits>(sizeof(T) * 8 - 1 - I)...};
  }
  // Changes the sign of lane i if bit i is set.
  static Vector flipped(Bits bits, Vector value) {
    constexpr Bits sign = Bits{1} << (sizeof(T) * 8 - 1);
    const Mask spread = (Mask{} + bits) << shifts(Lanes());
    return reinterpret_cast<Vector>(reinterpret_cast<Mask>(value) ^ (spread & sign));
  }
  static void flip(std::uint64_t word, Vector* r) {
#pragma GCC unroll 32
    for (int v = 0; v < vectors; ++v) r[v] = flipped(static_cast<Bits>(word >> (v * lanes)), r[v]);
  }

  // Computes the stage of this stride within a vector: lanes i and i ^ Stride become their sum and difference.
  template <int Stride, int... I>
  static Vector within(Vector x, std::integer_sequence<int, I...>) {
    constexpr Vector signs = {((I & Stride) != 0 ? T(-1) : T(1))...};
    return __builtin_shufflevector(x, x, (I ^ Stride)...) + x * signs;
  }
  template <int Count>
  static void across(Vector* r) {
#pragma GCC unroll 8
    for (int stride = 1; stride < Count; stride *= 2) {
#pragma GCC unroll 32
      for (int v = 0; v < Count; ++v) {
        if ((v & stride) != 0) continue;
        const Vector a = r[v], b = r[v + stride];
        r[v] = a + b;
        r[v + stride] = a - b;
      }
    }
  }
  static void butterflies(Vector* r) {
#pragma GCC unroll 32
    for (int v = 0; v < vectors; ++v) {
      if constexpr (lanes > 1) r[v] = within<1>(r[v], Lanes());
      if constexpr (lanes > 2) r[v] = within<2>(r[v], Lanes());
      if constexpr (lanes > 4) r[v] = within<4>(r[v], Lanes());
    }
    across<vectors>(r);
  }

  // Computes a butterfly of Radix blocks at distance `stride`.
  template <int Radix, typename Finish>
  static void pass(T* x, std::int64_t size, std::int64_t stride, const Finish& finish) {
    for (std::int64_t base = 0; base < size; base += Radix * stride) {
      for (std::int64_t at = base; at < base + stride; at += lanes) {
        Vector r[Radix];
#pragma GCC unroll 8
        for (int i = 0; i < Radix; ++i) r[i] = loaded(x + at + i * stride);
        across<Radix>(r);
#pragma GCC unroll 8
        for (int i = 0; i < Radix; ++i) finish(x + at + i * stride, at + i * stride, r[i]);
      }
    }
  }
  // Computes the stages from stride `group` on; the last pass calls `finish`.
  template <typename Finish>
  static void stages(T* x, std::int64_t size, const Finish& finish) {
    const auto keep = [](T* to, std::int64_t, Vector value) { store(to, value); };
    std::int64_t stride = group;
    for (; stride * 8 < size; stride *= 8) pass<8>(x, size, stride, keep);
    if (stride * 8 == size)
      pass<8>(x, size, stride, finish);
    else if (stride * 4 == size)
      pass<4>(x, size, stride, finish);
    else if (stride * 2 == size)
      pass<2>(x, size, stride, finish);
  }

  static T sign(const std::uint64_t* words, std::int64_t i) { return (words[0] >> i & 1) != 0 ? T(-1) : T(1); }
  static void small_stages(T* x, std::int64_t size) {
    for (std::int64_t stride = 1; stride < size; stride *= 2) {
      for (std::int64_t base = 0; base < size; base += 2 * stride) {
        for (std::int64_t i = base; i < base + stride; ++i) {
          const T a = x[i], b = x[i + stride];
          x[i] = a + b;
          x[i + stride] = a - b;
        }
      }
    }
  }
  static void small_transform(const T* in, const std::uint64_t* words, T* out, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) out[i] = sign(words, i) * in[i];
    small_stages(out, size);
  }
  template <bool Add>
  static void small_transposed(T* x, const std::uint64_t* words, T* sum, std::int64_t size) {
    small_stages(x, size);
    for (std::int64_t i = 0; i < size; ++i) sum[i] = (Add ? sum[i] : T(0)) + sign(words, i) * x[i];
  }
};

}  // namespace some::cpu
