#include "analysis/route_match.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "analysis/tiny_run.h"
#include "core/random.h"
#include "expect_error.h"

namespace some {
namespace {

using Weights = std::vector<std::vector<double>>;

double sum_of(const Weights& weights, const std::vector<int>& assignment) {
  double sum = 0;
  for (std::size_t row = 0; row < weights.size(); ++row) {
    if (assignment[row] >= 0) sum += weights[row][static_cast<std::size_t>(assignment[row])];
  }
  return sum;
}

// The largest sum over all permutations of the columns (padded with empty ones).
double largest_sum(const Weights& weights) {
  const std::size_t columns = weights[0].size(), n = std::max(weights.size(), columns);
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  double best = 0;
  do {
    double sum = 0;
    for (std::size_t row = 0; row < weights.size(); ++row) {
      const auto column = static_cast<std::size_t>(order[row]);
      if (column < columns) sum += weights[row][column];
    }
    best = std::max(best, sum);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(RouteMatch, TheAssignmentHasTheLargestSum) {
  const RandomStream stream = random_stream(1, "weights");
  std::uint64_t number = 0;
  for (const auto& [rows, columns] : std::vector<std::pair<int, int>>{{1, 1}, {3, 3}, {6, 6}, {3, 6}, {6, 3}, {1, 4}}) {
    for (int trial = 0; trial < 20; ++trial) {
      Weights weights(static_cast<std::size_t>(rows), std::vector<double>(static_cast<std::size_t>(columns)));
      for (auto& row : weights) {
        for (double& weight : row) weight = stream.below(number++, 10);
      }
      const std::vector<int> assignment = best_assignment(weights);
      EXPECT_EQ(sum_of(weights, assignment), largest_sum(weights)) << rows << " x " << columns;
      std::vector<int> used = assignment;
      std::erase(used, -1);
      std::sort(used.begin(), used.end());
      EXPECT_EQ(std::adjacent_find(used.begin(), used.end()), used.end()) << "one-to-one";
      EXPECT_EQ(std::ssize(used), std::min(rows, columns));
    }
  }
  EXPECT_TRUE(best_assignment({}).empty());
}

TEST(RouteMatch, ARunAgreesWithItselfAndLessWithAnother) {
  TemporaryFolder folder, second_folder;
  OpenedRun run = open_tiny(train_tiny(folder)), same = open_tiny(folder / "run");
  RouteMatchOptions options;
  options.max_documents = 6;
  options.shuffles = 10;
  const RouteMatch self = match_routes(run, same, options);
  ASSERT_EQ(self.layers.size(), 2U);
  for (const LayerMatch& layer : self.layers) {
    EXPECT_DOUBLE_EQ(layer.agreement, 1);
    EXPECT_LT(layer.chance_most, 1);
    EXPECT_LE(layer.chance_mean, layer.chance_most);
    EXPECT_DOUBLE_EQ(layer.p, 1.0 / 11);
    for (const ExpertPair& pair : layer.pairs) {
      EXPECT_EQ(pair.first, pair.second);
      EXPECT_DOUBLE_EQ(pair.shared, 1);
    }
  }
  OpenedRun other = open_tiny(train_tiny(second_folder, {"seed=5", "some.experts=6"}));
  const RouteMatch match = match_routes(run, other, options);
  for (const LayerMatch& layer : match.layers) {
    EXPECT_LT(layer.agreement, 1);
    EXPECT_GT(layer.agreement, 0);
    EXPECT_LE(layer.pairs.size(), 6U);
  }
}

TEST(RouteMatch, RunsOfOtherTokensAreRefused) {
  TemporaryFolder folder, second_folder;
  OpenedRun run = open_tiny(train_tiny(folder)), other = open_tiny(train_tiny(second_folder, {"data.vocab=330"}));
  EXPECT_ERROR(match_routes(run, other, {}), Code::tokenizer_mismatch, folder / "run", second_folder / "run");
}

}  // namespace
}  // namespace some
