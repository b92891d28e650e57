// Elements of the frozen library and their contributions to its hash: the arithmetic that the CPU and the GPU share, so
// that both give the same bits (spec 3, "Expert libraries"). Only operations that IEEE 754 rounds exactly are used;
// nothing here may be contracted.
//
// A matrix [rows, cols] = [out, in] of expert e uses positions e*rows*cols + row*cols + col of its stream. The streams
// are named "experts.<layer>.down" (w1) and ".up" (w2). The names are part of the definition: another name would give
// another library.
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
// Returns the stream of the priorities that select the zeros of a sparse matrix.
inline RandomStream library_drop_stream(std::uint64_t seed, int layer, LibraryMatrix matrix) {
  return random_stream(seed, library_stream_name(layer, matrix) + ".drop");
}

// default: U(+-1/sqrt(in)); bound = default_bound(in).
inline float default_bound(int in) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(in))); }
SOME_HD inline float default_element(const RandomStream& stream, std::uint64_t index, float bound) {
  return stream.symmetric(index) * bound;
}

// sparse: N(0, 0.01^2) unless the element is dropped. In each column, the dropped_in_column(rows) entries with the
// smallest (priority, row) are 0: lower priorities first, and lower rows first for equal priorities.
SOME_HD inline float sparse_element(const RandomStream& stream, std::uint64_t index) {
  return stream.normal(index) * 0.01f;
}
SOME_HD inline std::uint64_t drop_priority(const RandomStream& drops, std::uint64_t index) {
  return drops.bits64(index);
}
SOME_HD inline int dropped_in_column(int rows) { return (rows + 1) / 2; }

// orthogonal: elements of the Gaussian matrix that is then orthonormalized (orthogonal.h).
SOME_HD inline float gaussian_element(const RandomStream& stream, std::uint64_t index) { return stream.normal(index); }

// Returns an element's contribution to the hash of a library. The hash is the sum (modulo 2^64) over all elements of
// both matrices, so that it can be added up in any order. `index` is the element's position in its stream, so swapping
// two elements changes the hash.
SOME_HD inline std::uint64_t hash_element(LibraryMatrix matrix, std::uint64_t index, float value) {
  union {
    float f;
    std::uint32_t u;
  } bits{value};
  return mix64(bits.u ^ mix64(2 * index + static_cast<std::uint64_t>(matrix)));
}

}  // namespace some
