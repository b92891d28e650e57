// Orthogonal experts (spec 3): Q of the QR decomposition of a Gaussian matrix, with the signs that make diag R
// positive.
//
// The CPU and the GPU must give the same bits, so the order of every rounding is fixed here. The order is chosen so
// that any tiling and any number of threads can follow it: every number is ONE chain of fused multiply-adds in double
// precision along ONE index, upwards from 0.
//
// Let A be the matrix with tall = max(rows, cols) rows and wide = min(rows, cols) columns: the matrix itself if rows >=
// cols, its transpose otherwise. Its elements are gaussian_element() (a float), widened. The columns are divided into
// panels of kOrthogonalPanel (the last one may be narrower), which are processed from left to right. With Q the columns
// finished so far and P the panel, the following steps are done twice (kOrthogonalPasses; the second pass removes the
// rounding errors of the first):
//   1. S[j][l] = sum_i Q[i][j] * P[i][l] for all finished columns j, with P as before step 2:
//        s = 0;  for i = 0 .. tall-1:  s = fma(Q[i][j], P[i][l], s)
//   2. P[i][l] = P[i][l] - sum_j Q[i][j] * S[j][l]:
//        p = P[i][l];  for j = 0 .. finished-1:  p = fma(-Q[i][j], S[j][l], p)
//   3. Within the panel, for its columns j from left to right:
//        a. s = 0;  for i = 0 .. tall-1:  s = fma(P[i][j], P[i][j], s)
//           then P[i][j] = P[i][j] * inverse_length(s) for all i
//        b. for the columns l > j:  r = 0;  for i = 0 .. tall-1:  r = fma(P[i][j], P[i][l], r)
//           then P[i][l] = fma(-P[i][j], r, P[i][l]) for all i
// After both passes the panel joins Q. Finally every element is rounded by orthogonal_result() and stored at its
// original position.
//
// This is block Gram-Schmidt, done twice. Column lengths are positive, so diag R is positive in both passes and in
// their product: no signs need to be corrected.
#pragma once

#include <cmath>

#include "core/random.h"

namespace some {

inline constexpr int kOrthogonalPanel = 16;
inline constexpr int kOrthogonalPasses = 2;

// Returns the factor that normalizes a column. A column of zeros (extremely unlikely, and only in the smallest
// matrices) stays zero instead of becoming NaN.
SOME_HD inline double inverse_length(double sum_of_squares) {
  return sum_of_squares > 0.0 ? 1.0 / sqrt(sum_of_squares) : 0.0;
}

// Rounds to float. Adding zero turns -0 into +0: padding a panel with zeros may change only the sign of a zero.
SOME_HD inline float orthogonal_result(double value) { return static_cast<float>(value) + 0.0f; }

namespace cpu {
// Orthonormalizes a Gaussian matrix [rows, cols] in place: its columns (rows >= cols) or rows (rows < cols). Runs on
// the calling thread.
void orthogonalize(float* matrix, int rows, int cols);
}  // namespace cpu

}  // namespace some
