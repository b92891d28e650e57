// One element of the frozen library, and its share of the hash: the arithmetic that the CPU and the GPU share, so that
// both give the same bits (spec 3, "Expert libraries"). Only operations that IEEE 754 rounds exactly; nothing here may
// be contracted.
//
// A matrix [rows, cols] = [out, in] of expert e takes the positions e*rows*cols + row*cols + col of its stream. The
// streams have the names that the matrices had first, "experts.<layer>.down" (w1) and ".up" (w2): another name would
// make another library.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "core/random.h"

namespace some {

enum class LibraryMatrix : int { w1 = 0, w2 = 1 };

inline std::string library_stream_name(int layer, LibraryMatrix matrix) {
  return fmt::format("experts.{}.{}", layer, matrix == LibraryMatrix::w1 ? "down" : "up");
}
inline RandomStream library_stream(std::uint64_t seed, int layer, LibraryMatrix matrix) {
  return random_stream(seed, library_stream_name(layer, matrix));
}
// Of the priorities that choose the zeros of a sparse matrix.
inline RandomStream library_drop_stream(std::uint64_t seed, int layer, LibraryMatrix matrix) {
  return random_stream(seed, library_stream_name(layer, matrix) + ".drop");
}

// default: U(+-1/sqrt(in)); bound = default_bound(in).
inline float default_bound(int in) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(in))); }
SOME_HD inline float default_element(const RandomStream& stream, std::uint64_t index, float bound) {
  return stream.symmetric(index) * bound;
}

// sparse: N(0, 0.01^2) where it is not dropped. Of each column the dropped_in_column(rows) entries with the smallest
// (priority, row) are 0: the lower priority first, and of equal priorities the lower row.
SOME_HD inline float sparse_element(const RandomStream& stream, std::uint64_t index) {
  return stream.normal(index) * 0.01f;
}
SOME_HD inline std::uint64_t drop_priority(const RandomStream& drops, std::uint64_t index) {
  return drops.bits64(index);
}
SOME_HD inline int dropped_in_column(int rows) { return (rows + 1) / 2; }

// orthogonal: the Gaussian matrix that orthogonal.h makes orthonormal.
SOME_HD inline float gaussian_element(const RandomStream& stream, std::uint64_t index) { return stream.normal(index); }

// The hash of a library is the sum (modulo 2^64) of this over all elements of both matrices, so that it can be added up
// in any order. `index` is the element's position in its stream, so elements that change places change the hash.
SOME_HD inline std::uint64_t hash_element(LibraryMatrix matrix, std::uint64_t index, float value) {
  union {
    float f;
    std::uint32_t u;
  } bits{value};
  return mix64(bits.u ^ mix64(2 * index + static_cast<std::uint64_t>(matrix)));
}

}  // namespace some
