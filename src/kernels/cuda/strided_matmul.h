// The dense GEMM for matrices whose rows are further apart than they are long.
#pragma once

#include "kernels/cuda/matmul.h"

namespace some::cuda {

// Elements from one row to the next; 0: the number of columns.
struct RowStrides {
  std::int64_t first = 0, second = 0, result = 0;
};

// Returns the stride of a matrix that may have more columns than are used; the others are neither read nor written.
inline std::int64_t stride_of(const Tensor& matrix, std::int64_t used) {
  return matrix.shape().rank() == 2 && matrix.dim(1) > used ? matrix.dim(1) : 0;
}

// Computes what matmul computes.
void matmul_strided(Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView first, MatrixView second,
                    void* result, DType result_type, bool add, const void* bias, const RowStrides& strides);

}  // namespace some::cuda
