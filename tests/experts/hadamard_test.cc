#include "experts/hadamard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

namespace some {
namespace {

LibrarySpec spec_of(int d, int f, int transforms, int experts = 3) {
  LibrarySpec spec;
  spec.seed = 7;
  spec.method = hadamard_method;
  spec.experts = experts;
  spec.d_model = d;
  spec.d_ffn = f;
  spec.transforms = transforms;
  return spec;
}

std::shared_ptr<Context> context() { return make_context("cpu", "fp32", make_host(2)); }

TEST(HadamardExperts, RowsHaveTheLengthOfDefaultOnes) {
  const auto ctx = context();
  for (const int transforms : {1, 2, 3}) {
    for (const auto& [d, f] : {std::pair{64, 64}, std::pair{40, 70}, std::pair{129, 33}, std::pair{1, 5}}) {
      const ExpertWeights matrices = write_out_hadamard(*ctx, spec_of(d, f, transforms), 1);
      ASSERT_EQ(matrices.w1.shape(), (Shape{3, f, d}));
      ASSERT_EQ(matrices.w2.shape(), (Shape{3, d, f}));
      for (const auto& [matrix, inputs] : {std::pair{matrices.w1, d}, std::pair{matrices.w2, f}}) {
        const float* numbers = matrix.data<float>();
        double squares = 0;
        for (std::int64_t i = 0; i < matrix.elements(); ++i) {
          squares += static_cast<double>(numbers[i]) * numbers[i];
          if (transforms == 1) {
            ASSERT_FLOAT_EQ(std::abs(numbers[i]), static_cast<float>(1 / std::sqrt(3.0 * inputs)));
          }
        }
        // The mean square of a row; with several transforms and a cut width it is 1/3 only in the mean.
        const double mean = squares / static_cast<double>(matrix.elements() / inputs);
        EXPECT_NEAR(mean, 1.0 / 3, transforms == 1 ? 1e-6 : 0.06) << d << " " << f << " " << transforms;
      }
    }
  }
}

TEST(HadamardExperts, BlocksAreOrthogonalAndDiffer) {
  const auto ctx = context();
  for (const int transforms : {1, 2}) {
    const Tensor w1 = write_out_hadamard(*ctx, spec_of(32, 64, transforms), 0).w1;
    const float* rows = w1.data<float>();
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < i; ++j) {
        double product = 0;
        for (int c = 0; c < 32; ++c) product += static_cast<double>(rows[i * 32 + c]) * rows[j * 32 + c];
        EXPECT_NEAR(product, 0, 1e-7);
      }
    }
    std::set<std::vector<float>> blocks;
    for (int block = 0; block < 6; ++block) blocks.insert({rows + block * 1024, rows + (block + 1) * 1024});
    EXPECT_EQ(blocks.size(), 6u);
  }
}

TEST(HadamardExperts, FewerExpertsAreTheFirstOnes) {
  const auto ctx = context();
  const ExpertWeights all = write_out_hadamard(*ctx, spec_of(20, 50, 2, 5), 2),
                      some = write_out_hadamard(*ctx, spec_of(20, 50, 2, 2), 2);
  EXPECT_EQ(std::memcmp(all.w1.raw(), some.w1.raw(), some.w1.bytes()), 0);
  EXPECT_EQ(std::memcmp(all.w2.raw(), some.w2.raw(), some.w2.bytes()), 0);
}

TEST(HadamardExperts, HashIsThatOfTheSpecification) {
  const LibrarySpec spec = spec_of(20, 50, 2);
  EXPECT_EQ(hadamard_hash(spec, 1), random_stream(7, "hadamard 2 layer 1 experts 3 d_model 20 d_ffn 50 w2 1").key);
  std::set<std::uint64_t> hashes{hadamard_hash(spec, 1), hadamard_hash(spec, 2)};
  const auto changed = [&](auto change) {
    LibrarySpec other = spec;
    change(other);
    hashes.insert(hadamard_hash(other, 1));
  };
  changed([](LibrarySpec& s) { s.seed = 8; });
  changed([](LibrarySpec& s) { s.experts = 4; });
  changed([](LibrarySpec& s) { s.d_model = 21; });
  changed([](LibrarySpec& s) { s.d_ffn = 51; });
  changed([](LibrarySpec& s) { s.transforms = 1; });
  changed([](LibrarySpec& s) { s.has_w2 = false; });
  EXPECT_EQ(hashes.size(), 8u);
}

// Signs are drawn in advance only up to a limit: memory and time do not grow with the number of experts.
TEST(HadamardExperts, MemoryDoesNotGrowWithTheNumberOfExperts) {
  const auto ctx = context();
  const HadamardExperts few = make_hadamard_experts(*ctx, spec_of(512, 512, 1, 64), 0);
  ASSERT_TRUE(few.cached1);
  EXPECT_EQ(few.cached1.bytes(), 64u * 64);
  for (std::uint64_t n : {0u, 17u, 511u}) EXPECT_EQ(few.signs1().word(n), few.stream1.bits64(n));
  const HadamardExperts many = make_hadamard_experts(*ctx, spec_of(512, 512, 1, 1048576), 0);
  EXPECT_FALSE(many.cached1);
  EXPECT_FALSE(many.cached2);
  EXPECT_EQ(many.stream1.key, few.stream1.key);
}

}  // namespace
}  // namespace some
