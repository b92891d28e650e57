// Gradient of the shared input of two dense layers, as one GEMM on Hopper (input_gradients.cu). CUDA only.
#pragma once

#include "ops/linear_pair.h"

namespace some::cuda {

// Computes dx (+)= first_dy W1 + second_dy W2. Returns false, without doing anything, if it cannot.
bool add_two_layer_gemm(Context& ctx, const Tensor& first_dy, const Param& first, const Tensor& second_dy,
                        const Param& second, Tensor& dx, Into into);

// Computes dpre = (dy W) GELU'(pre). Returns false, without doing anything, if it cannot.
bool gemm_times_gelu_slope(Context& ctx, const Tensor& dy, const Param& weight, const Tensor& pre, Tensor& dpre);

}  // namespace some::cuda
