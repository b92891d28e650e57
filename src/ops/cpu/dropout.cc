#include "ops/dropout.h"

#include <algorithm>

#include "kernels/cpu/support.h"

namespace some::cpu {
namespace {

constexpr std::int64_t row_grain = 64;

template <typename T>
void apply(Context& ctx, const Dropout& dropout, const Tensor& x, Tensor& y) {
  const std::int64_t rows = x.dim(0), d = x.dim(1);
  const std::uint64_t key = dropout_key(dropout.key.data<T>());
  const std::uint32_t threshold = dropout_threshold(dropout.rate);
  const T scale = static_cast<T>(dropout_scale(threshold));
  const T* in = x.data<T>();
  T* out = y.data<T>();
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t first = 0; first < d; first += dropout_group) {
        const Philox bits = dropout_bits(key, dropout.place, dropout.first_position + row, first / dropout_group);
        const std::int64_t width = std::min(dropout_group, d - first), at = row * d + first;
        for (std::int64_t j = 0; j < width; ++j)
          out[at + j] = dropout_keeps(bits, static_cast<int>(j), threshold) ? in[at + j] * scale : T(0);
      }
    }
  });
}

}  // namespace

void apply_dropout(Context& ctx, const Dropout& dropout, const Tensor& x, Tensor& y) {
  with_precision(ctx, [&](auto zero) { apply<decltype(zero)>(ctx, dropout, x, y); });
}

}  // namespace some::cpu
