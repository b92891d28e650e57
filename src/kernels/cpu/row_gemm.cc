// Floating-point contraction is allowed as in gemm.cc.
#pragma GCC optimize("fp-contract=fast")
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions only

#include "kernels/cpu/row_gemm.h"

#include <algorithm>
#include <cstring>

namespace some::cpu {
namespace {

// A dot product is summed in `lanes` parts (element p belongs to part p mod lanes), each in the order of p. Then the
// upper half of the parts is added to the lower half until one is left.
template <typename T>
struct Lanes {
  static constexpr int count = 64 / static_cast<int>(sizeof(T));
  typedef T Vector __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
};
typedef std::uint16_t HalfVector __attribute__((vector_size(32), aligned(2), may_alias));
typedef std::uint32_t Bits __attribute__((vector_size(64)));

template <typename T>
[[gnu::always_inline]] inline typename Lanes<T>::Vector load(const T* from) {
  return *reinterpret_cast<const typename Lanes<T>::Vector*>(from);
}
[[gnu::always_inline]] inline Lanes<float>::Vector load(const std::uint16_t* from) {
  const Bits bits = __builtin_convertvector(*reinterpret_cast<const HalfVector*>(from), Bits) << 16;
  return reinterpret_cast<const Lanes<float>::Vector&>(bits);
}

template <typename T, typename From>
[[gnu::always_inline]] inline typename Lanes<T>::Vector load_some(const From* from, std::int64_t count) {
  From padded[Lanes<T>::count] = {};
  std::memcpy(padded, from, static_cast<std::size_t>(count) * sizeof(From));
  return load(padded);
}

// Sums the parts of four dot products.
[[gnu::always_inline]] inline void reduce(const Lanes<float>::Vector* v, float* out) {
  using V = Lanes<float>::Vector;
#define SOME_LOW_HALVES 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define SOME_HIGH_HALVES 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
  const V first =
      __builtin_shufflevector(v[0], v[1], SOME_LOW_HALVES) + __builtin_shufflevector(v[0], v[1], SOME_HIGH_HALVES);
  const V second =
      __builtin_shufflevector(v[2], v[3], SOME_LOW_HALVES) + __builtin_shufflevector(v[2], v[3], SOME_HIGH_HALVES);
#undef SOME_LOW_HALVES
#undef SOME_HIGH_HALVES
  const V four = __builtin_shufflevector(first, second, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                 __builtin_shufflevector(first, second, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  const V two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  const V one = two + __builtin_shufflevector(two, two, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  for (int i = 0; i < 4; ++i) out[i] = one[4 * i];
}
[[gnu::always_inline]] inline void reduce(const Lanes<double>::Vector* v, double* out) {
  for (int i = 0; i < 4; ++i) {
    double parts[8];
    std::memcpy(parts, v + i, sizeof(parts));
    for (int width = 4; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) parts[j] += parts[j + width];
    }
    out[i] = parts[0];
  }
}

constexpr int columns = 4;

// Multiplies `Rows` rows of A with four rows of W, of which `used` are stored. Prefetch: the first block that reads
// these rows of W requests later ones from memory, which arrive while all rows of A use these.
template <int Rows, bool Prefetch, typename T, typename From>
[[gnu::always_inline]] inline void block(const Product<T>& p, const T* a, const From* w, std::int64_t ldw, int used,
                                         T* c) {
  using Vector = typename Lanes<T>::Vector;
  constexpr int lanes = Lanes<T>::count;
  Vector sums[Rows][columns] = {};
  const From* at[columns];
  for (int j = 0; j < columns; ++j) at[j] = w + std::min(j, used - 1) * ldw;
  std::int64_t inner = 0;
  for (; inner + lanes <= p.k; inner += lanes) {
    Vector weights[columns];
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) weights[j] = load(at[j] + inner);
    if constexpr (Prefetch) {
      constexpr int ahead = sizeof(From) == 2 ? 16 : columns;  // rows of W; in bf16 they take less time each
#pragma GCC unroll 4
      for (int j = 0; j < columns; ++j) __builtin_prefetch(at[j] + inner + ahead * ldw);
    }
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Vector x = load(a + i * p.lda + inner);
#pragma GCC unroll 4
      for (int j = 0; j < columns; ++j) sums[i][j] += x * weights[j];
    }
  }
  if (inner < p.k) {
    Vector weights[columns];
    for (int j = 0; j < columns; ++j) weights[j] = load_some<T>(at[j] + inner, p.k - inner);
    for (int i = 0; i < Rows; ++i) {
      const Vector x = load_some<T>(a + i * p.lda + inner, p.k - inner);
      for (int j = 0; j < columns; ++j) sums[i][j] += x * weights[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    T out[columns];
    reduce(sums[i], out);
    T* to = c + i * p.ldc;
    for (int j = 0; j < used; ++j) to[j] = p.beta == T(0) ? p.alpha * out[j] : p.alpha * out[j] + p.beta * to[j];
  }
}

template <int MostRows, typename T, typename From>
[[gnu::always_inline]] inline void multiply(const Product<T>& p, const From* w) {
  // Number of rows of A that stay in the cache while all of W is read.
  constexpr std::int64_t rows_together = 96;
  for (std::int64_t top = 0; top < p.m; top += rows_together) {
    const std::int64_t bottom = std::min(p.m, top + rows_together);
    for (std::int64_t column = 0; column < p.n; column += columns) {
      const int used = static_cast<int>(std::min<std::int64_t>(columns, p.n - column));
      std::int64_t row = top;
      const auto next = [&]<int Rows>(std::integral_constant<int, Rows>) __attribute__((always_inline)) {
        T* const c = p.c + row * p.ldc + column;
        if (row == top)
          block<Rows, true>(p, p.a + row * p.lda, w + column * p.ldb, p.ldb, used, c);
        else
          block<Rows, false>(p, p.a + row * p.lda, w + column * p.ldb, p.ldb, used, c);
        row += Rows;
      };
      while (bottom - row >= MostRows) next(std::integral_constant<int, MostRows>());
      if constexpr (MostRows > 4) {
        if (bottom - row >= 4) next(std::integral_constant<int, 4>());
      }
      if constexpr (MostRows > 2) {
        if (bottom - row >= 2) next(std::integral_constant<int, 2>());
      }
      while (row < bottom) next(std::integral_constant<int, 1>());
    }
  }
}

template <int MostRows, typename T>
[[gnu::always_inline]] inline void multiply_either(const Product<T>& p, const std::uint16_t* half) {
  if constexpr (sizeof(T) == 4) {
    if (half != nullptr) return multiply<MostRows>(p, half);
  }
  multiply<MostRows>(p, p.b);
}

#if defined(__AVX2__)
template <typename T>
[[gnu::target("avx512f,avx512vl,avx512bw,avx512dq")]] void multiply_avx512(const Product<T>& p,
                                                                           const std::uint16_t* half) {
  multiply_either<6>(p, half);
}

template <typename T>
void multiply_here(const Product<T>& p, const std::uint16_t* half) {
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  if (wide)
    multiply_avx512(p, half);
  else
    multiply_either<1>(p, half);
}
#else
template <typename T>
void multiply_here(const Product<T>& p, const std::uint16_t* half) {
  multiply_either<1>(p, half);
}
#endif

template <typename T>
void checked(const Product<T>& p, const std::uint16_t* half) {
  if (p.transpose_a || !p.transpose_b) failed(Code::internal, "internal error: row_gemm needs A W^T");
  multiply_here(p, half);
}

}  // namespace

template <>
void row_gemm_serial(const Product<float>& product, const std::uint16_t* half) {
  checked(product, half);
}

template <>
void row_gemm_serial(const Product<double>& product, const std::uint16_t* half) {
  checked(product, half);
}

}  // namespace some::cpu
