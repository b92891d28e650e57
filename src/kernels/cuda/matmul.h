// The CUDA state for operations (defined in tensor/cuda_state.h, because copies use the same stream) and the dense
// GEMM.
#pragma once

#include "runtime/context.h"
#include "tensor/cuda_state.h"
#include "tensor/tensor.h"

namespace some::cuda {

// A row-major matrix in memory; with `transposed`, its transpose is used.
struct MatrixView {
  const void* data = nullptr;
  DType type = DType::f32;
  bool transposed = false;
};

// Computes result[m, n] = first[m, k] * second[k, n] (+ result when `add`) (+ bias[n] in each row when bias is not
// null). All matrices are row-major; sums are accumulated in fp32 (TF32 is never used). first and second have one type,
// f32 or bf16; result may be f32 or bf16; bias has the result's type.
void matmul(Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView first, MatrixView second,
            void* result, DType result_type, bool add, const void* bias = nullptr);

}  // namespace some::cuda
