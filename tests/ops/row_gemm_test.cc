#include "kernels/cpu/row_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/harness.h"

namespace some::test {
namespace {

struct RowShape {
  std::int64_t m, n, k;
};

template <typename T>
std::vector<T> values(std::int64_t count, const std::string& name) {
  const Array array = normals({count}, name);
  return {array.values.begin(), array.values.end()};
}

// Each row has the same bits alone and among others, and in any tile; all are the plain sums.
template <typename T>
void check_rows(const RowShape& s, double tolerance) {
  const std::int64_t lda = s.k + 3, ldb = s.k + 1, ldc = s.n + 2;
  const std::vector<T> a = values<T>(s.m * lda + 1, "a"), w = values<T>(s.n * ldb + 1, "w");
  std::vector<T> all(static_cast<std::size_t>(s.m * ldc + 1)), one = all;
  const cpu::Product<T> product{false, true, s.m, s.n, s.k, T(1), a.data(), lda, w.data(), ldb, T(0), all.data(), ldc};
  cpu::row_gemm_serial(product);
  cpu::Product<T> alone = product;
  alone.c = one.data();
  for (std::int64_t row = 0; row < s.m; ++row) {
    for (std::int64_t column = 0; column < s.n; column += 5)
      cpu::row_gemm_serial(cpu::part_of(alone, {row, row + 1, column, std::min(s.n, column + 5)}));
  }
  ASSERT_EQ(all, one);
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t p = 0; p < s.k; ++p) {
        const double term = static_cast<double>(a[static_cast<std::size_t>(i * lda + p)]) *
                            static_cast<double>(w[static_cast<std::size_t>(j * ldb + p)]);
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(static_cast<double>(all[static_cast<std::size_t>(i * ldc + j)]), sum, tolerance * size)
          << i << ", " << j;
    }
  }
}

TEST(RowGemm, RowsDoNotDependOnEachOther) {
  for (const RowShape& s :
       {RowShape{1, 1, 1}, {3, 2, 5}, {16, 64, 512}, {17, 7, 16}, {6, 9, 33}, {100, 12, 40}, {2, 0, 4}}) {
    SCOPED_TRACE(fmt::format("{}x{}x{}", s.m, s.n, s.k));
    check_rows<float>(s, 1e-6);
    check_rows<double>(s, 1e-14);
  }
}

TEST(RowGemm, AddsToTheResult) {
  const std::vector<float> a = {1, 2, 3}, w = {4, 5, 6, 7, 8, 9};
  std::vector<float> c = {100, 200};
  cpu::row_gemm_serial(cpu::Product<float>{false, true, 1, 2, 3, 2.0f, a.data(), 3, w.data(), 3, 0.5f, c.data(), 2});
  EXPECT_EQ(c, (std::vector<float>{2 * 32 + 50, 2 * 50 + 100}));
}

TEST(RowGemm, ReadsHalfWeights) {
  const std::int64_t m = 9, n = 21, k = 70;
  const Tensor weights = Tensor::empty({n, k}, DType::f32);
  const std::vector<float> drawn = values<float>(n * k, "w"), a = values<float>(m * k, "a");
  std::copy(drawn.begin(), drawn.end(), weights.data<float>());
  RowProducts products;
  products.add_half(weights);
  EXPECT_EQ(products.half_of(a.data()), nullptr);
  EXPECT_EQ(products.half_of(weights.data<float>() + k), products.half_of(weights.raw()) + k);
  std::vector<float> rounded(drawn.size());
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const std::uint16_t half = products.half_of(weights.raw())[i];
    rounded[i] = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
    EXPECT_NEAR(rounded[i], drawn[i], std::abs(drawn[i]) / 256);
  }
  std::vector<float> expected(static_cast<std::size_t>(m * n)), actual = expected;
  cpu::Product<float> product{false, true, m, n, k, 1.0f, a.data(), k, rounded.data(), k, 0.0f, expected.data(), n};
  cpu::row_gemm_serial(product);
  product.b = weights.data<float>();
  product.c = actual.data();
  cpu::row_gemm_serial(product, products.half_of(weights.raw()));
  EXPECT_EQ(actual, expected);
}

}  // namespace
}  // namespace some::test
