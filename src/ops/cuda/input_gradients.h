// The gradient of what two dense layers read, as one product on Hopper (input_gradients_cuda.cu). CUDA only.
#pragma once

#include "ops/linear_pair.h"

namespace some::cuda {

// dx (+)= first_dy W1 + second_dy W2. Returns false, without doing anything, if it cannot.
bool add_two_products(Context& ctx, const Tensor& first_dy, const Param& first, const Tensor& second_dy,
                      const Param& second, Tensor& dx, Into into);

// dpre = (dy W) GELU'(pre). Returns false, without doing anything, if it cannot.
bool product_times_slope(Context& ctx, const Tensor& dy, const Param& weight, const Tensor& pre, Tensor& dpre);

}  // namespace some::cuda
