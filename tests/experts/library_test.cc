#include "experts/library.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "core/threads.h"
#include "expect_error.h"
#include "experts/elements.h"
#include "experts/orthogonal.h"

namespace some {
namespace {

LayerLibrary make(const LibrarySpec& spec, int layer = 0, const std::string& precision = "fp32", int threads = 0) {
  auto ctx = make_context("cpu", precision, make_host(threads));
  return make_layer_library(*ctx, spec, layer);
}

LibrarySpec small(const std::string& method) {
  LibrarySpec spec;
  spec.seed = 7;
  spec.method = method;
  spec.experts = 3;
  spec.d_model = 40;
  spec.d_ffn = 65;
  return spec;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

struct Moments {
  double mean = 0, deviation = 0, smallest = 0, largest = 0;
};
Moments moments(const std::vector<float>& values) {
  Moments m;
  double square = 0;
  m.smallest = m.largest = values.front();
  for (const float v : values) {
    m.mean += v;
    square += static_cast<double>(v) * v;
    m.smallest = std::min<double>(m.smallest, v);
    m.largest = std::max<double>(m.largest, v);
  }
  m.mean /= static_cast<double>(values.size());
  m.deviation = std::sqrt(square / static_cast<double>(values.size()) - m.mean * m.mean);
  return m;
}

std::vector<float> numbers(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.elements()}; }

TEST(Library, PartsAreThoseOfTheWhole) {
  for (const std::string& method : library_methods()) {
    for (const std::string precision : {"fp32", "f64"}) {
      LibrarySpec spec = small(method);
      const LayerLibrary whole = make(spec, 2, precision);
      std::uint64_t hash = 0;
      for (const Block part : {Block{0, 1}, Block{1, 3}}) {
        spec.part = part;
        const LayerLibrary some_of_it = make(spec, 2, precision);
        EXPECT_TRUE(same_bits(some_of_it.weights.w1, whole.weights.w1.rows(part.begin, part.end))) << method;
        EXPECT_TRUE(same_bits(some_of_it.weights.w2, whole.weights.w2.rows(part.begin, part.end))) << method;
        hash += some_of_it.hash;
      }
      EXPECT_EQ(hash, whole.hash) << method;
    }
  }
}

TEST(Library, ShapesAreThoseOfTheExperts) {
  const LayerLibrary library = make(small("default"));
  EXPECT_EQ(library.weights.w1.shape(), (Shape{3, 65, 40}));
  EXPECT_EQ(library.weights.w2.shape(), (Shape{3, 40, 65}));
}

TEST(Library, DefaultIsUniformWithinItsBound) {
  LibrarySpec spec = small("default");
  spec.d_model = 128;
  spec.d_ffn = 200;
  spec.experts = 8;
  const LayerLibrary library = make(spec);
  for (const auto& [tensor, in] : {std::pair{library.weights.w1, 128}, std::pair{library.weights.w2, 200}}) {
    const double bound = 1.0 / std::sqrt(in);
    const std::vector<float> values = numbers(tensor);
    const Moments m = moments(values);
    EXPECT_LE(m.largest, bound);
    EXPECT_GE(m.smallest, -bound);
    EXPECT_GT(m.largest, 0.999 * bound);
    EXPECT_NEAR(m.mean, 0.0, 5 * bound / std::sqrt(3.0 * values.size()));
    EXPECT_NEAR(m.deviation, bound / std::sqrt(3.0), 0.01 * bound);
  }
}

TEST(Library, ElementsStandWhereTheContractSays) {
  const LayerLibrary library = make(small("default"), 4);
  const RandomStream w1 = random_stream(7, "experts.4.down"), w2 = random_stream(7, "experts.4.up");
  const float w1_bound = static_cast<float>(1.0 / std::sqrt(40.0)),
              w2_bound = static_cast<float>(1.0 / std::sqrt(65.0));
  for (std::uint64_t e = 0; e < 3; ++e) {
    for (std::uint64_t j = 0; j < 65 * 40; ++j) {
      const std::uint64_t n = e * 65 * 40 + j;
      ASSERT_EQ(library.weights.w1.data<float>()[n], w1.symmetric(n) * w1_bound);
      ASSERT_EQ(library.weights.w2.data<float>()[n], w2.symmetric(n) * w2_bound);
    }
  }
}

TEST(Library, DefaultDoesNotDependOnWhereAnExpertStartsInItsBlock) {
  LibrarySpec spec = small("default");
  spec.d_model = 3;
  spec.d_ffn = 5;  // 15 numbers per expert: every remainder modulo 4 occurs
  spec.experts = 9;
  const LayerLibrary library = make(spec);
  const RandomStream w1 = library_stream(7, 0, LibraryMatrix::w1);
  for (std::uint64_t n = 0; n < 9 * 15; ++n)
    ASSERT_EQ(library.weights.w1.data<float>()[n], w1.symmetric(n) * default_bound(3));
}

TEST(Library, SparseColumnsHaveExactlyHalfZeros) {
  for (const int rows : {1, 2, 7, 64, 65}) {
    LibrarySpec spec = small("sparse");
    spec.d_ffn = rows;
    spec.d_model = 19;
    const LayerLibrary library = make(spec);
    for (int e = 0; e < spec.experts; ++e) {
      for (const auto& [tensor, height, width] :
           {std::tuple{library.weights.w1, rows, 19}, std::tuple{library.weights.w2, 19, rows}}) {
        const float* matrix = tensor.data<float>() + static_cast<std::ptrdiff_t>(e) * height * width;
        for (int c = 0; c < width; ++c) {
          int zeros = 0;
          for (int r = 0; r < height; ++r) zeros += matrix[r * width + c] == 0.0f;
          ASSERT_EQ(zeros, (height + 1) / 2) << "rows " << height << " column " << c;
        }
      }
    }
  }
}

TEST(Library, SparseValuesAreNormalWhereTheyAreKept) {
  LibrarySpec spec = small("sparse");
  spec.d_model = 150;
  spec.d_ffn = 200;
  const LayerLibrary library = make(spec);
  std::vector<float> kept;
  for (const float v : numbers(library.weights.w1)) {
    if (v != 0.0f) kept.push_back(v);
  }
  const Moments m = moments(kept);
  EXPECT_NEAR(m.mean, 0.0, 5 * 0.01 / std::sqrt(static_cast<double>(kept.size())));
  EXPECT_NEAR(m.deviation, 0.01, 2e-4);
  int within = 0;
  for (const float v : kept) within += std::fabs(v) < 0.01f;
  EXPECT_NEAR(static_cast<double>(within) / static_cast<double>(kept.size()), 0.6827, 0.01);
}

// Every entry is equally likely to be zero, and each column is drawn separately.
TEST(Library, SparseZerosAreSpreadEvenly) {
  LibrarySpec spec = small("sparse");
  spec.d_model = 400;
  spec.d_ffn = 16;
  spec.experts = 4;
  const LayerLibrary library = make(spec);
  const float* matrix = library.weights.w1.data<float>();
  std::set<std::vector<bool>> patterns;
  std::vector<int> dropped(16, 0);
  for (int e = 0; e < 4; ++e) {
    for (int c = 0; c < 400; ++c) {
      std::vector<bool> pattern;
      for (int r = 0; r < 16; ++r) {
        const bool zero = matrix[(e * 16 + r) * 400 + c] == 0.0f;
        pattern.push_back(zero);
        dropped[static_cast<std::size_t>(r)] += zero;
      }
      patterns.insert(pattern);
    }
  }
  EXPECT_GT(patterns.size(), 1300u);  // 1600 draws hit about 1505 of the 12870 possible patterns
  for (const int count : dropped) EXPECT_NEAR(count, 800, 120);  // 6 standard deviations
}

TEST(Library, SparseFollowsThePriorities) {
  const LayerLibrary library = make(small("sparse"), 2);
  const RandomStream drops = library_drop_stream(7, 2, LibraryMatrix::w1),
                     values = library_stream(7, 2, LibraryMatrix::w1);
  for (int e = 0; e < 3; ++e) {
    for (int c = 0; c < 40; ++c) {
      for (int r = 0; r < 65; ++r) {
        const std::uint64_t index = static_cast<std::uint64_t>(e * 65 + r) * 40 + c;
        int before = 0;
        for (int other = 0; other < 65; ++other) {
          const std::uint64_t mine = drops.bits64(index),
                              theirs = drops.bits64(static_cast<std::uint64_t>(e * 65 + other) * 40 + c);
          before += theirs < mine || (theirs == mine && other < r);
        }
        const float expected = before < 33 ? 0.0f : values.normal(index) * 0.01f;
        ASSERT_EQ(library.weights.w1.data<float>()[index], expected);
      }
    }
  }
}

// Returns the largest deviation of the shorter side's Gram matrix from the identity.
double gram_error(const float* matrix, int rows, int cols) {
  const bool tall = rows >= cols;
  const int count = tall ? cols : rows, length = tall ? rows : cols;
  double worst = 0;
  for (int a = 0; a < count; ++a) {
    for (int b = a; b < count; ++b) {
      double dot = 0;
      for (int i = 0; i < length; ++i) {
        dot += static_cast<double>(tall ? matrix[i * cols + a] : matrix[a * cols + i]) *
               (tall ? matrix[i * cols + b] : matrix[b * cols + i]);
      }
      worst = std::max(worst, std::fabs(dot - (a == b ? 1.0 : 0.0)));
    }
  }
  return worst;
}

TEST(Library, OrthogonalMatricesAreOrthonormal) {
  for (const auto& [d, f] : {std::pair{1, 1},
                             {1, 5},
                             {5, 1},
                             {2, 2},
                             {16, 16},
                             {17, 16},
                             {16, 33},
                             {40, 65},
                             {100, 48},
                             {96, 96},
                             {128, 384}}) {
    LibrarySpec spec = small("orthogonal");
    spec.d_model = d;
    spec.d_ffn = f;
    const LayerLibrary library = make(spec);
    for (int e = 0; e < spec.experts; ++e) {
      const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(e) * d * f;
      EXPECT_LT(gram_error(library.weights.w1.data<float>() + first, f, d), 1e-6) << d << "x" << f;
      EXPECT_LT(gram_error(library.weights.w2.data<float>() + first, d, f), 1e-6) << d << "x" << f;
    }
  }
}

// Computes Q independently: Householder reflections in long double, signs fixed by diag R. Q is unique, so both must
// agree.
std::vector<long double> householder_q(const std::vector<float>& a, int tall, int wide) {
  std::vector<long double> r(a.begin(), a.end()), q(static_cast<std::size_t>(tall) * tall, 0.0L);
  for (int i = 0; i < tall; ++i) q[static_cast<std::size_t>(i) * tall + i] = 1.0L;
  for (int c = 0; c < wide; ++c) {
    std::vector<long double> v(static_cast<std::size_t>(tall), 0.0L);
    long double norm = 0;
    for (int i = c; i < tall; ++i) {
      v[i] = r[static_cast<std::size_t>(i) * wide + c];
      norm += v[i] * v[i];
    }
    norm = std::sqrt(norm);
    v[c] += v[c] >= 0 ? norm : -norm;
    long double square = 0;
    for (int i = c; i < tall; ++i) square += v[i] * v[i];
    if (square == 0) continue;
    for (int l = 0; l < wide; ++l) {
      long double dot = 0;
      for (int i = c; i < tall; ++i) dot += v[i] * r[static_cast<std::size_t>(i) * wide + l];
      for (int i = c; i < tall; ++i) r[static_cast<std::size_t>(i) * wide + l] -= 2 * dot / square * v[i];
    }
    for (int row = 0; row < tall; ++row) {
      long double dot = 0;
      for (int i = c; i < tall; ++i) dot += v[i] * q[static_cast<std::size_t>(row) * tall + i];
      for (int i = c; i < tall; ++i) q[static_cast<std::size_t>(row) * tall + i] -= 2 * dot / square * v[i];
    }
  }
  std::vector<long double> out(static_cast<std::size_t>(tall) * wide);
  for (int i = 0; i < tall; ++i) {
    for (int c = 0; c < wide; ++c) {
      out[static_cast<std::size_t>(i) * wide + c] =
          q[static_cast<std::size_t>(i) * tall + c] * (r[static_cast<std::size_t>(c) * wide + c] < 0 ? -1.0L : 1.0L);
    }
  }
  return out;
}

TEST(Library, OrthogonalIsTheQOfTheGaussianWithPositiveDiagonal) {
  LibrarySpec spec = small("orthogonal");
  spec.d_model = 37;
  spec.d_ffn = 70;
  const LayerLibrary library = make(spec, 1);
  const RandomStream w1 = library_stream(7, 1, LibraryMatrix::w1), w2 = library_stream(7, 1, LibraryMatrix::w2);
  const int e = 2, tall = 70, wide = 37;
  std::vector<float> a(tall * wide), b(tall * wide);
  for (int i = 0; i < tall; ++i) {
    for (int c = 0; c < wide; ++c) {
      a[static_cast<std::size_t>(i * wide + c)] = w1.normal(static_cast<std::uint64_t>(e * tall * wide + i * wide + c));
      b[static_cast<std::size_t>(i * wide + c)] =
          w2.normal(static_cast<std::uint64_t>(e * tall * wide + c * tall + i));  // w2 is [37, 70]: transposed
    }
  }
  const std::vector<long double> qa = householder_q(a, tall, wide), qb = householder_q(b, tall, wide);
  for (int i = 0; i < tall; ++i) {
    for (int c = 0; c < wide; ++c) {
      ASSERT_NEAR(library.weights.w1.data<float>()[e * tall * wide + i * wide + c],
                  static_cast<double>(qa[static_cast<std::size_t>(i * wide + c)]), 1e-7);
      ASSERT_NEAR(library.weights.w2.data<float>()[e * tall * wide + c * tall + i],
                  static_cast<double>(qb[static_cast<std::size_t>(i * wide + c)]), 1e-7);
    }
  }
}

// Computes the same in the order of roundings fixed by orthogonal.h, one number at a time, as a GPU thread does. The
// bits must be the same.
void orthogonalize_plainly(std::vector<float>& matrix, int rows, int cols) {
  const int tall = std::max(rows, cols), wide = std::min(rows, cols);
  const auto at = [&](int i, int c) -> std::size_t {
    return static_cast<std::size_t>(rows >= cols ? i * cols + c : c * cols + i);
  };
  std::vector<std::vector<double>> q(static_cast<std::size_t>(wide),
                                     std::vector<double>(static_cast<std::size_t>(tall)));
  for (int c = 0; c < wide; ++c) {
    for (int i = 0; i < tall; ++i) q[c][i] = matrix[at(i, c)];
  }
  const auto dot = [&](const std::vector<double>& a, const std::vector<double>& b) {
    double s = 0.0;
    for (int i = 0; i < tall; ++i) s = std::fma(a[i], b[i], s);
    return s;
  };
  for (int begin = 0; begin < wide; begin += kOrthogonalPanel) {
    const int end = std::min(wide, begin + kOrthogonalPanel);
    for (int pass = 0; pass < kOrthogonalPasses; ++pass) {
      for (int l = begin; l < end; ++l) {
        std::vector<double> s;
        for (int j = 0; j < begin; ++j) s.push_back(dot(q[j], q[l]));
        for (int i = 0; i < tall; ++i) {
          for (int j = 0; j < begin; ++j) q[l][i] = std::fma(-q[j][i], s[j], q[l][i]);
        }
      }
      for (int j = begin; j < end; ++j) {
        const double scale = inverse_length(dot(q[j], q[j]));
        for (double& v : q[j]) v *= scale;
        for (int l = j + 1; l < end; ++l) {
          const double r = dot(q[j], q[l]);
          for (int i = 0; i < tall; ++i) q[l][i] = std::fma(-q[j][i], r, q[l][i]);
        }
      }
    }
  }
  for (int c = 0; c < wide; ++c) {
    for (int i = 0; i < tall; ++i) matrix[at(i, c)] = orthogonal_result(q[c][i]);
  }
}

TEST(Library, OrthogonalFollowsTheFixedOrderToTheBit) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 3}, {50, 37}, {37, 50}, {64, 64}, {130, 48}}) {
    std::vector<float> fast(static_cast<std::size_t>(rows) * cols);
    const RandomStream stream = random_stream(3, "test");
    for (std::size_t j = 0; j < fast.size(); ++j) fast[j] = stream.normal(j);
    fast[0] = -0.0f;  // the sign of a zero must not depend on how panels are padded
    if (fast.size() == 1) fast[0] = -2.0f;
    std::vector<float> plain = fast;
    cpu::orthogonalize(fast.data(), rows, cols);
    orthogonalize_plainly(plain, rows, cols);
    EXPECT_EQ(std::memcmp(fast.data(), plain.data(), fast.size() * sizeof(float)), 0) << rows << "x" << cols;
  }
}

// A nearly singular matrix is the hard case of Gram-Schmidt.
TEST(Library, NearlyDependentColumnsBecomeOrthonormalToo) {
  const int rows = 60, cols = 40;
  std::vector<float> matrix(rows * cols);
  const RandomStream stream = random_stream(3, "dependent");
  for (int i = 0; i < rows; ++i) {
    const float shared = stream.normal(static_cast<std::uint64_t>(100000 + i));
    for (int c = 0; c < cols; ++c)
      matrix[static_cast<std::size_t>(i * cols + c)] =
          shared + 1e-5f * stream.normal(static_cast<std::uint64_t>(i * cols + c));
  }
  cpu::orthogonalize(matrix.data(), rows, cols);
  EXPECT_LT(gram_error(matrix.data(), rows, cols), 1e-6);
}

TEST(Library, AColumnOfZerosStaysZero) {
  std::vector<float> matrix(6, 0.0f);
  cpu::orthogonalize(matrix.data(), 3, 2);
  for (const float v : matrix) EXPECT_EQ(v, 0.0f);
}

TEST(Library, SameBitsForAnyNumberOfThreads) {
  for (const std::string method : {"default", "orthogonal", "sparse"}) {
    const LayerLibrary one = make(small(method), 0, "fp32", 1);
    for (const int count : {2, 5}) {
      const LayerLibrary many = make(small(method), 0, "fp32", count);
      EXPECT_TRUE(same_bits(one.weights.w1, many.weights.w1)) << method;
      EXPECT_TRUE(same_bits(one.weights.w2, many.weights.w2)) << method;
      EXPECT_EQ(one.hash, many.hash) << method;
    }
  }
}

TEST(Library, DoublePrecisionHoldsTheSameNumbers) {
  for (const std::string method : {"default", "orthogonal", "sparse"}) {
    const LayerLibrary single = make(small(method)), wide = make(small(method), 0, "f64");
    ASSERT_EQ(wide.weights.w1.dtype(), DType::f64);
    EXPECT_EQ(single.hash, wide.hash);
    EXPECT_TRUE(same_bits(single.weights.w1.to(DType::f64), wide.weights.w1));
    EXPECT_TRUE(same_bits(single.weights.w2.to(DType::f64), wide.weights.w2));
  }
}

TEST(Library, FeaturesHaveNoUpMatrixAndTheSameDownMatrix) {
  for (const std::string method : {"default", "orthogonal", "sparse"}) {
    LibrarySpec spec = small(method);
    const LayerLibrary both = make(spec);
    spec.has_w2 = false;
    const LayerLibrary features = make(spec);
    EXPECT_FALSE(features.weights.w2);
    EXPECT_TRUE(same_bits(both.weights.w1, features.weights.w1));
    EXPECT_NE(both.hash, features.hash);
  }
}

TEST(Library, SeedLayerExpertAndMethodAllMatter) {
  std::set<std::uint64_t> hashes;
  std::vector<std::vector<float>> matrices;
  for (const std::string method : {"default", "orthogonal", "sparse"}) {
    for (const std::uint64_t seed : {7u, 8u}) {
      for (const int layer : {0, 1}) {
        LibrarySpec spec = small(method);
        spec.seed = seed;
        const LayerLibrary library = make(spec, layer);
        EXPECT_TRUE(hashes.insert(library.hash).second);
        for (int e = 0; e < spec.experts; ++e) {
          const float* first = library.weights.w1.data<float>() + e * 65 * 40;
          matrices.emplace_back(first, first + 65 * 40);
        }
      }
    }
  }
  // Independent: no two matrices of any expert, layer, seed or method correlate.
  for (std::size_t a = 0; a < matrices.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      double ab = 0, aa = 0, bb = 0;
      for (std::size_t j = 0; j < matrices[a].size(); ++j) {
        ab += static_cast<double>(matrices[a][j]) * matrices[b][j];
        aa += static_cast<double>(matrices[a][j]) * matrices[a][j];
        bb += static_cast<double>(matrices[b][j]) * matrices[b][j];
      }
      const bool same_draw =
          a / 3 % 4 == b / 3 % 4 && a % 3 == b % 3;  // orthogonal and sparse start from the same Gaussian numbers
      if (!same_draw) {
        EXPECT_LT(std::fabs(ab) / std::sqrt(aa * bb), 0.12) << a << " " << b;
      }
    }
  }
}

TEST(Library, HashIsTheSumOverElements) {
  const LayerLibrary library = make(small("sparse"), 3);
  std::uint64_t hash = 0;
  for (std::uint64_t n = 0; n < 3 * 65 * 40; ++n) {
    hash += hash_element(LibraryMatrix::w1, n, library.weights.w1.data<float>()[n]);
    hash += hash_element(LibraryMatrix::w2, n, library.weights.w2.data<float>()[n]);
  }
  EXPECT_EQ(hash, library.hash);
}

TEST(Library, HashSeesOneBitAndEveryExchange) {
  std::set<std::uint64_t> shares;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    EXPECT_TRUE(shares.insert(hash_element(LibraryMatrix::w1, n, 0.5f)).second);
    EXPECT_TRUE(shares.insert(hash_element(LibraryMatrix::w2, n, 0.5f)).second);
    EXPECT_TRUE(shares.insert(hash_element(LibraryMatrix::w2, n, std::nextafter(0.5f, 1.0f))).second);
  }
}

// Checkpoints identify the library by this hash. If one of these changes, every saved run loses its experts: never
// change them.
TEST(Library, GoldenHashes) {
  const std::map<std::string, std::uint64_t> golden = {
      {"default", 1446961516583467986ull},
      {"orthogonal", 2856544157523895243ull},
      {"sparse", 13462912186083862308ull},
  };
  for (const auto& [method, expected] : golden) EXPECT_EQ(make(small(method), 1).hash, expected) << method;
}

TEST(Library, RefusesWhatItDoesNotKnow) {
  LibrarySpec spec = small("hadamard");
  EXPECT_ERROR(make(spec), Code::library_invalid, "some.init", "hadamard");
  spec = small("default");
  spec.experts = 0;
  EXPECT_ERROR(make(spec), Code::library_invalid, "0");
}

}  // namespace
}  // namespace some
