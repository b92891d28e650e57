#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/support.h"

namespace some::cpu {
namespace {

constexpr std::int64_t grain = 16384;

// Calls body(T{}) with the element type of a tensor of real numbers.
template <typename Body>
void with_type(const Tensor& x, Body&& body) {
  switch (x.dtype()) {
    case DType::f32: return body(float{});
    case DType::f64: return body(double{});
    case DType::bf16: return body(BFloat16{});
    default: failed(Code::type_unsupported, "this operation requires real numbers, not {}", name_of(x.dtype()));
  }
}

template <typename T>
double read(T value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return static_cast<double>(to_float(value));
  else
    return static_cast<double>(value);
}

template <typename T>
T write(double value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

void same_shape(const Tensor& x, const Tensor& y) {
  if (x.shape() != y.shape())
    failed(Code::shape_mismatch, "shapes {} and {} differ", x.shape().text(), y.shape().text());
}

// Computes y[i] = body(i, y[i]) for every element.
template <typename T, typename Body>
void for_each_element(Context& ctx, const Tensor& y, Body&& body) {
  T* target = y.data<T>();
  parallel_chunks(*ctx.threads, y.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) target[i] = body(i, target[i]);
  });
}

}  // namespace

void add_into(Context& ctx, const Tensor& x, Tensor& y) {
  same_shape(x, y);
  const auto add_whole = [&](auto zero) {
    using T = decltype(zero);
    const T* source = x.data<T>();
    for_each_element<T>(ctx, y, [=](std::int64_t i, T value) { return static_cast<T>(value + source[i]); });
  };
  if (x.dtype() == DType::i32) return add_whole(std::int32_t{});
  if (x.dtype() == DType::i64) return add_whole(std::int64_t{});
  with_type(x, [&](auto from) {
    with_type(y, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* source = x.data<From>();
      if constexpr (std::is_same_v<From, To> && !std::is_same_v<From, BFloat16>) {
        for_each_element<To>(ctx, y, [=](std::int64_t i, To value) { return value + source[i]; });
      } else {
        for_each_element<To>(ctx, y,
                             [=](std::int64_t i, To value) { return write<To>(read(value) + read(source[i])); });
      }
    });
  });
}

void convert(Context& ctx, const Tensor& x, Tensor& y) {
  same_shape(x, y);
  with_type(x, [&](auto from) {
    with_type(y, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* source = x.data<From>();
      for_each_element<To>(ctx, y, [=](std::int64_t i, To) { return write<To>(read(source[i])); });
    });
  });
}

void fill(Context& ctx, double value, Tensor& x) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    const T wanted = write<T>(value);
    for_each_element<T>(ctx, x, [=](std::int64_t, T) { return wanted; });
  });
}

void fill_each(Context&, std::span<const double> values, Tensor& x) {
  if (static_cast<std::int64_t>(values.size()) != x.elements())
    failed(Code::shape_mismatch, "fill_each: {} values for {} elements", values.size(), x.elements());
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    std::transform(values.begin(), values.end(), x.data<T>(), [](double value) { return write<T>(value); });
  });
}

void sum_all(Context& ctx, const Tensor& x, Tensor& out) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const T* source = x.data<T>();
    std::vector<double> sums(static_cast<std::size_t>((x.elements() + grain - 1) / grain));
    parallel_chunks(*ctx.threads, x.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = begin; i < end; ++i) sum += static_cast<double>(source[i]);
      sums[static_cast<std::size_t>(begin / grain)] = sum;
    });
    out.data<T>()[0] = static_cast<T>(std::accumulate(sums.begin(), sums.end(), 0.0));
  });
}

void gather_rows(Context& ctx, const Tensor& x, const Tensor& rows, Tensor& y) {
  const std::int64_t count = rows.elements(), height = x.dim(0);
  const std::size_t row_bytes = height > 0 ? x.bytes() / static_cast<std::size_t>(height) : 0;
  const std::int32_t* row = rows.data<std::int32_t>();
  const char* source = static_cast<const char*>(x.raw());
  char* target = static_cast<char*>(y.raw());
  if (x.dtype() != y.dtype())
    failed(Code::type_unsupported, "rows of {} cannot be gathered into {}", name_of(x.dtype()), name_of(y.dtype()));
  parallel_chunks(*ctx.threads, count, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (row[i] < -1 || row[i] >= height)
        failed(Code::index_out_of_range, "row {} is out of range; the tensor has {} rows", row[i], height);
      char* const to = target + static_cast<std::size_t>(i) * row_bytes;
      if (row[i] < 0)
        std::fill_n(to, row_bytes, char{0});
      else
        std::copy_n(source + static_cast<std::size_t>(row[i]) * row_bytes, row_bytes, to);
    }
  });
}

void exponential(Context& ctx, const Tensor& x, Tensor& y) {
  same_shape(x, y);
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const T* source = x.data<T>();
    for_each_element<T>(ctx, y, [=](std::int64_t i, T) { return std::exp(source[i]); });
  });
}

void multiply_add(Context& ctx, const Tensor& a, const Tensor& b, Tensor& y) {
  same_shape(a, y);
  same_shape(b, y);
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    for_each_element<T>(ctx, y, [=](std::int64_t i, T value) { return value + left[i] * right[i]; });
  });
}

void add_counts(Context&, std::span<const Tensor> counts, std::span<const Tensor> totals) {
  for (std::size_t l = 0; l < counts.size(); ++l) {
    const std::int64_t experts = counts[l].dim(0), k = counts[l].dim(1);
    const std::int32_t* count = counts[l].data<std::int32_t>();
    std::int64_t* sum = totals[l].data<std::int64_t>();
    for (std::int64_t e = 0; e < experts; ++e)
      sum[e] += std::accumulate(count + e * k, count + (e + 1) * k, std::int64_t{0});
  }
}

}  // namespace some::cpu
