#include "keys/measures.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace some {
namespace {

TEST(Measures, GiniOfKnownVectors) {
  EXPECT_NEAR(gini({1, 1, 1, 1}), 0.0, 1e-15);
  EXPECT_NEAR(gini({0, 0, 0, 7}), 0.75, 1e-15);    // (E-1)/E
  EXPECT_NEAR(gini({3, 1, 2}), 2.0 / 9.0, 1e-15);  // (-2*1 + 0*2 + 2*3) / (3*6), in any order
  EXPECT_EQ(gini({0, 0, 0}), 0.0);
  EXPECT_EQ(gini({}), 0.0);
  EXPECT_EQ(gini({5}), 0.0);
}

TEST(Measures, EntropyOfKnownVectors) {
  EXPECT_NEAR(entropy_bits({2, 2, 2, 2}), 2.0, 1e-15);
  EXPECT_EQ(entropy_bits({0, 9, 0}), 0.0);
  EXPECT_NEAR(entropy_bits({1, 1, 2}), 1.5, 1e-15);
  EXPECT_EQ(entropy_bits({0, 0}), 0.0);
  EXPECT_EQ(entropy_bits({}), 0.0);
}

TEST(Measures, EffectiveExpertsAndLoad) {
  EXPECT_NEAR(effective_experts({1, 1, 1, 1, 0, 0, 0, 0}), 4.0, 1e-12);
  EXPECT_EQ(effective_experts({0, 0}), 0.0);
  EXPECT_NEAR(max_over_mean_load({1, 1, 1, 1}), 1.0, 1e-15);
  EXPECT_NEAR(max_over_mean_load({0, 0, 0, 1}), 4.0, 1e-15);
  EXPECT_EQ(max_over_mean_load({0, 0}), 0.0);
  EXPECT_EQ(max_over_mean_load({}), 0.0);
}

TEST(Measures, FrequentSetsIgnoreOrderAndComeMostFrequentFirst) {
  const std::vector<std::int32_t> indices = {3, 1, 1, 3, 0, 2, 3, 1, 2, 0, 4, 0};
  const std::vector<Clique> sets = frequent_sets(indices, 2, 10);
  ASSERT_EQ(sets.size(), 3u);
  EXPECT_EQ(sets[0].experts, (std::vector<int>{1, 3}));
  EXPECT_NEAR(sets[0].share, 0.5, 1e-15);
  EXPECT_EQ(sets[1].experts, (std::vector<int>{0, 2}));
  EXPECT_NEAR(sets[1].share, 1.0 / 3.0, 1e-15);
  EXPECT_EQ(sets[2].experts, (std::vector<int>{0, 4}));
  EXPECT_EQ(frequent_sets(indices, 2, 1).size(), 1u);
  EXPECT_TRUE(frequent_sets({}, 2, 5).empty());
  EXPECT_THROW(frequent_sets({1, 2, 3}, 2, 5), Error);
}

TEST(Measures, EqualSharesAreOrderedByExpert) {
  const std::vector<Clique> sets = frequent_sets({5, 2, 9, 0}, 1, 10);
  ASSERT_EQ(sets.size(), 4u);
  EXPECT_EQ(sets[0].experts[0], 0);
  EXPECT_EQ(sets[3].experts[0], 9);
}

}  // namespace
}  // namespace some
