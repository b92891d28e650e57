// Dense layers through cuBLASLt, with the bias in its epilogue. Its GELU is the tanh approximation, so the exact GELU
// is a separate pass; backward, that pass also sums the bias gradient.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/strided_matmul.h"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/reduce/column_sums.h"
#include "ops/cuda/deferred_gradients.h"
#include "ops/cuda/input_gradients.h"
#include "ops/linear.h"
#include "ops/linear_pair.h"
#include "runtime/row_products.h"

namespace some::cuda {
namespace {

constexpr int threads = 256;

// Computes y = GELU(pre): reads and writes each element once.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads) gelu_kernel(const T* pre, T* y, std::int64_t vectors) {
  wait_previous_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= vectors) return;
  float values[WIDTH];
  load_elements<WIDTH>(pre + i * WIDTH, values);
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) values[j] = gelu_of<T>(values[j]).value;
  store_elements<WIDTH>(y + i * WIDTH, values);
}

// Multiplies row by row if text is being generated. Returns false otherwise.
bool multiply_rows(Context& ctx, const Tensor& x, const Param& weight, const Param& bias, bool gelu, Tensor& y) {
  const RowProducts* const rows = row_products(ctx);
  return rows != nullptr && rows->on_gpu != nullptr &&
         rows->on_gpu(ctx, x, weight.compute, bias ? &bias.value : nullptr, gelu, y);
}

}  // namespace

void linear_forward(Context& ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& y) {
  if (multiply_rows(ctx, x, weight, bias, false, y)) return;
  const std::int64_t rows = x.dim(0), in = weight.value.dim(1), out = weight.value.dim(0);
  // The epilogue requires the bias in the precision of the result.
  const void* bias_data = !bias ? nullptr : y.dtype() == bias.compute.dtype() ? bias.compute.raw() : bias.value.raw();
  matmul_strided(ctx, rows, out, in, {x.raw(), x.dtype(), false}, {weight.compute.raw(), weight.compute.dtype(), true},
                 y.raw(), y.dtype(), false, bias_data, {stride_of(x, in), 0, stride_of(y, out)});
}

void linear_gelu_forward(Context& ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& pre,
                         Tensor& y) {
  if (multiply_rows(ctx, x, weight, bias, true, y)) return;  // nothing reads `pre` without a backward pass
  cuda::linear_forward(ctx, x, weight, bias, pre);
  const std::int64_t count = pre.elements();
  if (count == 0) return;
  with_real_type(pre.dtype(), "GELU", [&](auto tag) {
    using T = decltype(tag);
    const T* source = elements_of<T>(pre);
    T* target = elements_of<T>(y);
    constexpr int width = vector_width<T>;
    if (count % width == 0 && all_aligned16(source, target)) {
      launch_dependent(ctx, gelu_kernel<T, width>, grid_for(count / width, threads), threads, 0, source, target,
                       count / width);
    } else {
      launch_dependent(ctx, gelu_kernel<T, 1>, grid_for(count, threads), threads, 0, source, target, count);
    }
  });
}

void linear_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias,
                     Tensor* dx, Into into) {
  const std::int64_t rows = x.dim(0), in = weight.value.dim(1), out = weight.value.dim(0);
  if (rows == 0) return;
  const ArenaScope scope(*ctx.arena);
  Tensor grad = dy;
  if (dy.dtype() != x.dtype()) {
    // The tensor cores require both factors in bf16, so one pass converts dy and sums its columns.
    if (x.dtype() != DType::bf16)
      failed(Code::type_unsupported, "linear_backward: a gradient of {} for an input of {}", name_of(dy.dtype()),
             name_of(x.dtype()));
    grad = ctx.scratch({rows, out}, DType::bf16);
    auto* copy = elements_of<bf16>(grad);
    if (bias && bias.grad) {
      add_column_sums(ctx, dy.raw(), dy.dtype(), rows, out, floats(bias.grad), copy);
    } else {
      convert_to_bf16(ctx, floats(dy), copy, rows * out);
    }
    add_gradient(ctx, grad, x, weight, Param());
  } else if (!defer_gradient(ctx, dy, x, weight, bias)) {
    add_gradient(ctx, dy, x, weight, bias);
  }
  if (dx != nullptr)
    matmul_strided(ctx, rows, in, out, {grad.raw(), grad.dtype(), false},
                   {weight.compute.raw(), weight.compute.dtype(), false}, dx->raw(), dx->dtype(), into == Into::add,
                   nullptr, {stride_of(grad, out), 0, stride_of(*dx, in)});
}

void linear_inputs_backward(Context& ctx, const Tensor& first_dy, const Param& first, const Tensor& second_dy,
                            const Param& second, Tensor& dx, Into into) {
  if (add_two_layer_gemm(ctx, first_dy, first, second_dy, second, dx, into)) return;
  const auto multiply = [&](const Tensor& dy, const Param& weight, bool add) {
    matmul(ctx, dy.dim(0), weight.value.dim(1), weight.value.dim(0), {dy.raw(), dy.dtype(), false},
           {weight.compute.raw(), weight.compute.dtype(), false}, dx.raw(), dx.dtype(), add);
  };
  multiply(first_dy, first, into == Into::add);
  multiply(second_dy, second, true);
}

void linear_after_gelu_backward(Context& ctx, const Tensor& dy, const Tensor& y, const Param& weight, const Param& bias,
                                const Tensor& pre, Tensor& dpre) {
  if (dpre.dim(0) == 0) return;
  if (gemm_times_gelu_slope(ctx, dy, weight, pre, dpre))
    return cuda::linear_backward(ctx, dy, y, weight, bias, nullptr, Into::overwrite);
  cuda::linear_backward(ctx, dy, y, weight, bias, &dpre, Into::overwrite);
  gelu_backward_with_sums(ctx, pre.raw(), dpre.raw(), pre.dtype(), pre.dim(0), pre.dim(1), nullptr);
}

void linear_gelu_backward(Context& ctx, const Tensor& pre, Tensor& dy, const Tensor& x, const Param& weight,
                          const Param& bias, Tensor* dx, Into into) {
  float* bias_grad = bias && bias.grad ? floats(bias.grad) : nullptr;
  gelu_backward_with_sums(ctx, pre.raw(), dy.raw(), pre.dtype(), pre.dim(0), pre.dim(1), bias_grad);
  cuda::linear_backward(ctx, dy, x, weight, Param(), dx, into);
}

}  // namespace some::cuda
