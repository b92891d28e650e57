#include "kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/error.h"
#include "kernels/cpu/math.h"
#include "ops/attention.h"
#include "ops/harness.h"
#include "tensor/device.h"

namespace some::test {
namespace {

struct GemmShape {
  std::int64_t m, n, k;
};

// Computes the GEMM, with extra space between rows, by `multiply` and by plain loops; returns the largest relative
// difference.
template <typename T, typename Multiply>
double gemm_error(const GemmShape& s, bool ta, bool tb, T alpha, T beta, Multiply&& multiply) {
  const std::int64_t lda = (ta ? s.m : s.k) + 3, ldb = (tb ? s.k : s.n) + 2, ldc = s.n + 5;
  const Array a = normals({(ta ? s.k : s.m) + 1, lda}, "a"), b = normals({(tb ? s.n : s.k) + 1, ldb}, "b");
  const Array c = normals({s.m + 1, ldc}, "c");
  const std::vector<T> fast_a(a.values.begin(), a.values.end()), fast_b(b.values.begin(), b.values.end());
  std::vector<T> fast_c(c.values.begin(), c.values.end());
  if (beta == T(0)) {
    for (std::int64_t i = 0; i < s.m; ++i)
      std::fill_n(fast_c.begin() + i * ldc, s.n, std::numeric_limits<T>::quiet_NaN());
  }
  multiply(
      cpu::Product<T>{ta, tb, s.m, s.n, s.k, alpha, fast_a.data(), lda, fast_b.data(), ldb, beta, fast_c.data(), ldc});
  Array expected = c, actual = c;
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < s.k; ++p)
        sum += a[ta ? p * lda + i : i * lda + p] * b[tb ? j * ldb + p : p * ldb + j];
      expected[i * ldc + j] = static_cast<double>(alpha) * sum + static_cast<double>(beta) * c[i * ldc + j];
    }
  }
  actual.values.assign(fast_c.begin(), fast_c.end());
  return difference(expected, actual);
}

const GemmShape gemm_shapes[] = {{1, 1, 1}, {1, 17, 5}, {7, 1, 300},   {12, 32, 256}, {13, 33, 257}, {0, 4, 4},
                                 {4, 0, 4}, {5, 6, 0},  {200, 70, 30}, {530, 15, 40}, {97, 1030, 9}, {300, 300, 20}};

TEST(Gemm, EveryPathMatchesPlainLoops) {
  Threads threads;
  for (const GemmShape& s : gemm_shapes) {
    for (int mode = 0; mode < 8; ++mode) {
      const bool ta = mode & 1, tb = mode & 2, add = mode & 4;
      SCOPED_TRACE(fmt::format("{}x{}x{} mode {}", s.m, s.n, s.k, mode));
      const auto serial = [](const auto& product) { cpu::gemm_serial(product); };
      const auto parallel = [&](const auto& product) { cpu::gemm(threads, product); };
      const auto own = [](const auto& product) { cpu::native_gemm(product); };
      EXPECT_LE(gemm_error<float>(s, ta, tb, 0.5f, add ? 2.0f : 0.0f, serial), 2e-6);
      EXPECT_LE(gemm_error<float>(s, ta, tb, 0.5f, add ? 2.0f : 0.0f, parallel), 2e-6);
      EXPECT_LE(gemm_error<float>(s, ta, tb, 0.5f, add ? 2.0f : 0.0f, own), 2e-6);
      EXPECT_LE(gemm_error<double>(s, ta, tb, 1.0, add ? 1.0 : 0.0, parallel), 1e-13);
      EXPECT_LE(gemm_error<double>(s, ta, tb, 1.0, add ? 1.0 : 0.0, own), 1e-13);
    }
  }
}

// Rounds to bf16, to the nearest, ties to even.
float rounded_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u);
}

// A product in bf16 is the product of the rounded operands, summed in float.
TEST(Gemm, MultipliesInBf16) {
  if (!cpu::bf16_gemm_reason().empty()) GTEST_SKIP() << cpu::bf16_gemm_reason();
  Threads threads(3), one_thread(1);
  for (const GemmShape& s : gemm_shapes) {
    for (int mode = 0; mode < 8; ++mode) {
      SCOPED_TRACE(fmt::format("{}x{}x{} mode {}", s.m, s.n, s.k, mode));
      cpu::Product<float> product{(mode & 1) != 0,
                                  (mode & 2) != 0,
                                  s.m,
                                  s.n,
                                  s.k,
                                  0.5f,
                                  nullptr,
                                  0,
                                  nullptr,
                                  0,
                                  (mode & 4) != 0 ? 2.0f : 0.0f,
                                  nullptr,
                                  0};
      product.lda = (product.transpose_a ? s.m : s.k) + 3;
      product.ldb = (product.transpose_b ? s.k : s.n) + 2;
      product.ldc = s.n + 5;
      const auto floats_of = [](const Array& array) {
        return std::vector<float>(array.values.begin(), array.values.end());
      };
      std::vector<float> a = floats_of(normals({(product.transpose_a ? s.k : s.m) + 1, product.lda}, "a")),
                         b = floats_of(normals({(product.transpose_b ? s.n : s.k) + 1, product.ldb}, "b")),
                         c = floats_of(normals({s.m + 1, product.ldc}, "c")), expected = c, exact = c;
      for (float& x : a) x *= 1.0123f;  // the test's numbers themselves are representable in bf16
      for (float& x : b) x *= 1.0123f;
      product.a = a.data();
      product.b = b.data();
      product.c = exact.data();
      cpu::native_gemm(product);
      std::vector<float> rounded_a = a, rounded_b = b;
      for (float& x : rounded_a) x = rounded_to_bf16(x);
      for (float& x : rounded_b) x = rounded_to_bf16(x);
      product.a = rounded_a.data();
      product.b = rounded_b.data();
      product.c = expected.data();
      cpu::native_gemm(product);
      product.a = a.data();
      product.b = b.data();
      product.c = c.data();
      product.bf16 = true;
      std::vector<float> again = c;
      cpu::gemm(threads, product);
      product.c = again.data();
      cpu::gemm(one_thread, product);
      EXPECT_TRUE(again == c) << "the number of threads changes bits";
      double error = 0, from_exact = 0, length = 0;
      for (std::size_t i = 0; i < c.size(); ++i) {
        error += std::pow(c[i] - expected[i], 2);
        from_exact += std::pow(c[i] - exact[i], 2);
        length += std::pow(expected[i], 2);
      }
      EXPECT_LE(std::sqrt(error), 2e-6 * std::sqrt(length));
      if (s.m * s.n * s.k > 1000) {
        EXPECT_GT(std::sqrt(from_exact), 1e-4 * std::sqrt(length)) << "not rounded";
      }
    }
  }
}

TEST(Gemm, TilesCoverTheResultOnce) {
  for (const auto& [m, n] : {std::pair<int, int>{1, 1}, {384, 384}, {4096, 512}, {100, 3000}, {513, 97}}) {
    std::vector<int> seen(static_cast<std::size_t>(m) * static_cast<std::size_t>(n));
    for (const cpu::Tile& tile : cpu::make_tiles(m, n, 8)) {
      for (std::int64_t i = tile.row_begin; i < tile.row_end; ++i) {
        for (std::int64_t j = tile.column_begin; j < tile.column_end; ++j) ++seen[static_cast<std::size_t>(i * n + j)];
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::int64_t>(m) * n);
  }
}

TEST(Gemm, SaysWhatItUses) {
  Threads threads;
  EXPECT_FALSE(cpu::gemm_description().empty());
  EXPECT_GT(cpu::peak_gemm_rate(threads, 64, 64, 64, 0.0), 0.0);
}

TEST(Math, ExponentialInFloat) {
  double worst = 0;
  for (float x = -87.0f; x < 88.0f; x += 0.00731f) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(cpu::fast_exp(x) - exact) / exact);
  }
  EXPECT_LE(worst, 2.5e-7);
  EXPECT_EQ(cpu::fast_exp(0.0f), 1.0f);
  EXPECT_EQ(cpu::fast_exp(-200.0f), 0.0f);
  EXPECT_EQ(cpu::fast_exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(cpu::fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, NormalLawInFloat) {
  double worst_cumulative = 0, worst_density = 0;
  for (float x = -12.0f; x < 12.0f; x += 0.00037f) {
    const cpu::NormalDistribution<float> fast = cpu::normal_distribution(x);
    const cpu::NormalDistribution<double> exact = cpu::normal_distribution(static_cast<double>(x));
    worst_cumulative = std::max(worst_cumulative, std::fabs(fast.cumulative - exact.cumulative));
    worst_density = std::max(worst_density, std::fabs(fast.density - exact.density));
  }
  EXPECT_LE(worst_cumulative, 2e-7);
  EXPECT_LE(worst_density, 2e-7);
  EXPECT_TRUE(std::isnan(cpu::normal_distribution(std::numeric_limits<float>::quiet_NaN()).cumulative));
}

TEST(Devices, TheCpuRefusesBfloat16Arithmetic) {
  auto context = make_context("cpu", "fp32");
  context->compute = DType::bf16;
  Tensor qkv = Tensor::zeros({1, 12}, DType::bf16);
  const Tensor positions = Tensor::zeros({1}, DType::i32);
  EXPECT_THROW(rope(*context, qkv, positions, 1, false), Error);
}

}  // namespace
}  // namespace some::test
