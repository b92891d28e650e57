// Matrices with more columns than an operation may use, whose others are NaN.
#pragma once

#include <cmath>

#include "ops/harness.h"

namespace some::test {

// Returns the matrix with `width` columns.
inline Array widened(const Array& matrix, std::int64_t width) {
  Array out = zeros({matrix.dim(0), width});
  for (std::int64_t i = 0; i < out.shape.elements(); ++i)
    out[i] = i % width < matrix.dim(1) ? matrix[i / width * matrix.dim(1) + i % width] : std::nan("");
  return out;
}

// Returns the first columns of a matrix.
inline Array narrowed(const Tensor& matrix, std::int64_t columns) {
  const Array all = read(matrix);
  Array out = zeros({all.dim(0), columns});
  for (std::int64_t i = 0; i < out.shape.elements(); ++i) out[i] = all[i / columns * all.dim(1) + i % columns];
  return out;
}

}  // namespace some::test
