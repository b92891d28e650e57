#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace some {
namespace {

// Known answers of Philox 4x32-10 as published with the generator (Random123: counter, key -> output).
TEST(Random, PhiloxKnownAnswers) {
  const Philox zero = philox(0, 0, 0);
  EXPECT_EQ(zero.v[0], 0x6627e8d5u);
  EXPECT_EQ(zero.v[1], 0xe169c58du);
  EXPECT_EQ(zero.v[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.v[3], 0x9b00dbd8u);
  const Philox ones = philox(~0ull, ~0ull, ~0ull);
  EXPECT_EQ(ones.v[0], 0x408f276du);
  EXPECT_EQ(ones.v[1], 0x41c83b0eu);
  EXPECT_EQ(ones.v[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.v[3], 0x6d5451fdu);
  const Philox pi = philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull);
  EXPECT_EQ(pi.v[0], 0xd16cfe09u);
  EXPECT_EQ(pi.v[1], 0x94fdccebu);
  EXPECT_EQ(pi.v[2], 0x5001e420u);
  EXPECT_EQ(pi.v[3], 0x24126ea1u);
}

TEST(Random, StreamIsAPureFunctionOfSeedAndName) {
  const RandomStream first = random_stream(7, "layers.0.attn");
  const RandomStream again = random_stream(7, "layers.0.attn");
  EXPECT_EQ(first.key, again.key);
  for (std::uint64_t n : {0ull, 1ull, 5ull, 1ull << 40}) EXPECT_EQ(first.normal(n), again.normal(n));
  // The order of draws does not affect the numbers.
  std::vector<float> forwards, backwards;
  for (int n = 0; n < 100; ++n) forwards.push_back(first.uniform(static_cast<std::uint64_t>(n)));
  for (int n = 99; n >= 0; --n) backwards.push_back(first.uniform(static_cast<std::uint64_t>(n)));
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(forwards, backwards);

  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const char* name : {"", "a", "b", "ab", "ba", "aa", "layers.0", "layers.1"})
      keys.insert(random_stream(seed, name).key);
  EXPECT_EQ(keys.size(), 160u);
}

TEST(Random, UniformAndSymmetricStayInside) {
  const RandomStream stream = random_stream(1, "uniform");
  double sum = 0, square = 0, symmetric_sum = 0;
  const int count = 200000;
  for (int n = 0; n < count; ++n) {
    const float u = stream.uniform(static_cast<std::uint64_t>(n));
    const float s = stream.symmetric(static_cast<std::uint64_t>(n));
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    ASSERT_GT(s, -1.0f);
    ASSERT_LT(s, 1.0f);
    ASSERT_NE(s, 0.0f);
    sum += u;
    square += static_cast<double>(u) * u;
    symmetric_sum += s;
  }
  EXPECT_NEAR(sum / count, 0.5, 4 * 0.2887 / std::sqrt(count));
  EXPECT_NEAR(square / count, 1.0 / 3, 0.003);
  EXPECT_NEAR(symmetric_sum / count, 0.0, 4 * 0.5774 / std::sqrt(count));
}

TEST(Random, NormalMoments) {
  const RandomStream stream = random_stream(3, "normal");
  const int count = 400000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, pair = 0;
  int beyond = 0;
  float before = 0;
  for (int n = 0; n < count; ++n) {
    const float x = stream.normal(static_cast<std::uint64_t>(n));
    ASSERT_TRUE(std::isfinite(x));
    const double d = x;
    m1 += d;
    m2 += d * d;
    m3 += d * d * d;
    m4 += d * d * d * d;
    pair += d * before;
    before = x;
    beyond += std::abs(d) > 1.959964;
  }
  const double root = std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(m1 / count, 0.0, 4 / root);
  EXPECT_NEAR(m2 / count, 1.0, 4 * std::sqrt(2.0) / root);
  EXPECT_NEAR(m3 / count, 0.0, 4 * std::sqrt(15.0) / root);
  EXPECT_NEAR(m4 / count, 3.0, 4 * std::sqrt(96.0) / root);
  EXPECT_NEAR(pair / count, 0.0, 4 / root);
  EXPECT_NEAR(static_cast<double>(beyond) / count, 0.05, 4 * 0.218 / root);
}

TEST(Random, ExactLogIsAccurate) {
  double worst = 0;
  const RandomStream stream = random_stream(5, "log");
  for (std::uint64_t n = 0; n < 200000; ++n) {
    const double x = (static_cast<double>(stream.bits32(n)) + 0.5) * 2.3283064365386962890625e-10;
    worst = std::max(worst, std::abs(exact_log(x) - std::log(x)) / std::max(1.0, std::abs(std::log(x))));
  }
  for (double x : {1.0, 0.5, 2.0, 0.70710678118654752, 0.70710678118654757, 1e-300, 1e300, 1.1641532182693481e-10})
    worst = std::max(worst, std::abs(exact_log(x) - std::log(x)) / std::max(1.0, std::abs(std::log(x))));
  EXPECT_LT(worst, 4e-16);
  EXPECT_EQ(exact_log(1.0), 0.0);
}

TEST(Random, ExactSincosIsAccurate) {
  const long double turn = 6.283185307179586476925286766559L;
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double t = static_cast<double>(i) / 200000;
    double s, c;
    exact_sincos_turn(t, &s, &c);
    worst = std::max(worst, std::abs(s - static_cast<double>(std::sin(turn * static_cast<long double>(t)))));
    worst = std::max(worst, std::abs(c - static_cast<double>(std::cos(turn * static_cast<long double>(t)))));
  }
  EXPECT_LT(worst, 4e-16);
  double s, c;
  exact_sincos_turn(0.25, &s, &c);
  EXPECT_EQ(s, 1.0);
  EXPECT_EQ(c, 0.0);
}

TEST(Random, BelowIsInsideAndEven) {
  const RandomStream stream = random_stream(9, "below");
  std::vector<int> counts(7);
  for (std::uint64_t n = 0; n < 70000; ++n) {
    const std::uint32_t value = stream.below(n, 7);
    ASSERT_LT(value, 7u);
    counts[value] += 1;
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 450);
  for (std::uint64_t n = 0; n < 100; ++n) EXPECT_EQ(stream.below(n, 1), 0u);
}

}  // namespace
}  // namespace some
