#include "ops/conv.h"

#include <algorithm>

#include "kernels/cpu/math.h"
#include "kernels/cpu/support.h"

namespace some::cpu {
namespace {

constexpr std::int64_t row_grain = 64;

// Computes y += factors * x, element by element.
template <typename T>
void add_product(const T* factors, const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] += factors[i] * x[i];
}

template <typename T>
void forward(Context& ctx, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& y) {
  const std::int64_t tokens = rows.dim(0), width = rows.dim(1), count = taps.value.dim(0), d = x.dim(1);
  const T* states = x.data<T>();
  const T* factors = taps.value.data<T>();
  const std::int32_t* row = rows.data<std::int32_t>();
  T* out = y.data<T>();
  parallel_chunks(*ctx.threads, tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      std::copy_n(states + row[t * width] * d, d, out + t * d);
      for (std::int64_t j = 1; j <= count; ++j) {
        const std::int64_t before = row[t * width + j];
        if (before >= 0) add_product(factors + (j - 1) * d, states + before * d, out + t * d, d);
      }
    }
  });
}

template <typename T>
void backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& dx) {
  const std::int64_t tokens = rows.dim(0), width = rows.dim(1), count = taps.value.dim(0), d = x.dim(1),
                     numbers = count * d;
  const T* gradient = dy.data<T>();
  const T* states = x.data<T>();
  const T* factors = taps.value.data<T>();
  const std::int32_t* row = rows.data<std::int32_t>();
  T* result = dx.data<T>();
  ArenaScope scope(*ctx.arena);
  const std::int64_t chunks = (tokens + row_grain - 1) / row_grain;
  T* partials = taps.grad ? ctx.scratch({chunks, numbers}).template data<T>() : nullptr;
  parallel_chunks(*ctx.threads, tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    T* sums = partials != nullptr ? partials + begin / row_grain * numbers : nullptr;
    if (sums != nullptr) std::fill_n(sums, numbers, T(0));
    for (std::int64_t t = begin; t < end; ++t) {
      add_scaled(T(1), gradient + t * d, result + t * d, d);
      for (std::int64_t j = 1; j <= count; ++j) {
        const std::int64_t later = t + j, before = row[t * width + j];
        if (later < tokens && row[later * width + j] == t)
          add_product(factors + (j - 1) * d, gradient + later * d, result + t * d, d);
        if (sums != nullptr && before >= 0) add_product(gradient + t * d, states + before * d, sums + (j - 1) * d, d);
      }
    }
  });
  if (partials != nullptr) add_partials(ctx, partials, chunks, numbers, taps.grad.data<T>());
}

}  // namespace

void conv_rows(Context& ctx, const Tensor& positions, Tensor& rows) {
  const std::int64_t width = rows.dim(1);
  const std::int32_t* position = positions.data<std::int32_t>();
  std::int32_t* out = rows.data<std::int32_t>();
  parallel_chunks(*ctx.threads, rows.dim(0), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t j = 0; j < width; ++j)
        out[t * width + j] = position[t] >= j ? static_cast<std::int32_t>(t - j) : -1;
    }
  });
}

void conv_forward(Context& ctx, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& y) {
  with_precision(ctx, [&](auto zero) { forward<decltype(zero)>(ctx, x, rows, taps, y); });
}

void conv_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rows, const Param& taps, Tensor& dx) {
  with_precision(ctx, [&](auto zero) { backward<decltype(zero)>(ctx, dy, x, rows, taps, dx); });
}

void scatter_rows(Context& ctx, const Tensor& x, const Tensor& rows, Tensor& y) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t d = x.dim(1);
    for (std::int64_t i = 0; i < x.dim(0); ++i)
      std::copy_n(x.data<T>() + i * d, d, y.data<T>() + rows.data<std::int32_t>()[i] * d);
  });
}

}  // namespace some::cpu
