#include "ops/linear.h"

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/support.h"
#include "ops/linear_pair.h"

namespace some::cpu {
namespace {

// Computes y = x W^T + b, and calls finish(row, column_begin, column_end) for each row of a tile while it is in the
// cache.
template <typename T, typename Epilogue>
void affine(Context& ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& y, Epilogue&& finish) {
  const std::int64_t rows = x.dim(0), in = weight.compute.dim(1), out = weight.compute.dim(0);
  const T* b = bias ? bias.value.data<T>() : nullptr;
  T* result = y.data<T>();
  const Product<T> product{false, true, rows,   out, in, T(1), x.data<T>(), in, weight.compute.data<T>(),
                           in,    T(0), result, out};
  gemm_then_for(ctx, in_precision(ctx, product), [&](const Tile& tile) {
    for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row) {
      T* line = result + row * out;
      if (b != nullptr) {
#pragma omp simd
        for (std::int64_t c = tile.column_begin; c < tile.column_end; ++c) line[c] += b[c];
      }
      finish(row, tile.column_begin, tile.column_end);
    }
  });
}

template <typename T>
void input_gradient(Context& ctx, const Tensor& dy, const Param& weight, Tensor& dx, Into into) {
  const std::int64_t rows = dy.dim(0), in = weight.compute.dim(1), out = weight.compute.dim(0);
  gemm(*ctx.threads,
       in_precision(ctx, Product<T>{false, false, rows, in, out, T(1), dy.data<T>(), out, weight.compute.data<T>(), in,
                                    into == Into::add ? T(1) : T(0), dx.data<T>(), in}));
}

template <typename T>
void backward(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias, Tensor* dx,
              Into into) {
  const std::int64_t rows = x.dim(0), in = weight.compute.dim(1), out = weight.compute.dim(0);
  const T* gradient = dy.data<T>();
  if (weight.grad) {
    gemm(*ctx.threads, in_precision(ctx, Product<T>{true, false, out, in, rows, T(1), gradient, out, x.data<T>(), in,
                                                    T(1), weight.grad.data<T>(), in}));
  }
  if (bias && bias.grad) add_column_sums(ctx, gradient, rows, out, bias.grad.data<T>());
  if (dx != nullptr) input_gradient<T>(ctx, dy, weight, *dx, into);
}

template <typename T>
void through_gelu(Context& ctx, const Tensor& pre, Tensor& dy) {
  const T* before = pre.data<T>();
  T* gradient = dy.data<T>();
  parallel_chunks(*ctx.threads, pre.elements(), 16384, [&](std::int64_t begin, std::int64_t end) {
    gelu_gradient(before + begin, gradient + begin, end - begin);
  });
}

}  // namespace

void linear_forward(Context& ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& y) {
  with_precision(ctx, [&](auto zero) {
    affine<decltype(zero)>(ctx, x, weight, bias, y, [](std::int64_t, std::int64_t, std::int64_t) {});
  });
}

void linear_gelu_forward(Context& ctx, const Tensor& x, const Param& weight, const Param& bias, Tensor& pre,
                         Tensor& y) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t out = pre.dim(1);
    const T* before = pre.data<T>();
    T* after = y.data<T>();
    affine<T>(ctx, x, weight, bias, pre, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      gelu(before + row * out + begin, after + row * out + begin, end - begin);
    });
  });
}

void linear_two_forward(Context& ctx, const Tensor& x, const Param& first, const Param& bias, Tensor& pre, Tensor& y,
                        const Param& second, Tensor& other) {
  cpu::linear_gelu_forward(ctx, x, first, bias, pre, y);
  cpu::linear_forward(ctx, x, second, Param(), other);
}

void linear_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias,
                     Tensor* dx, Into into) {
  with_precision(ctx, [&](auto zero) { backward<decltype(zero)>(ctx, dy, x, weight, bias, dx, into); });
}

void linear_inputs_backward(Context& ctx, const Tensor& first_dy, const Param& first, const Tensor& second_dy,
                            const Param& second, Tensor& dx, Into into) {
  with_precision(ctx, [&](auto zero) {
    input_gradient<decltype(zero)>(ctx, first_dy, first, dx, into);
    input_gradient<decltype(zero)>(ctx, second_dy, second, dx, Into::add);
  });
}

void linear_after_gelu_backward(Context& ctx, const Tensor& dy, const Tensor& y, const Param& weight, const Param& bias,
                                const Tensor& pre, Tensor& dpre) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    backward<T>(ctx, dy, y, weight, bias, &dpre, Into::overwrite);
    through_gelu<T>(ctx, pre, dpre);
  });
}

void linear_gelu_backward(Context& ctx, const Tensor& pre, Tensor& dy, const Tensor& x, const Param& weight,
                          const Param& bias, Tensor* dx, Into into) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    through_gelu<T>(ctx, pre, dy);
    backward<T>(ctx, dy, x, weight, bias, dx, into);
  });
}

}  // namespace some::cpu
