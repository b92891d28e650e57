// The learning-rate range test.
#include "train/lr_ramp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "temporary_folder.h"
#include "train/small_run.h"

namespace some {
namespace {

LrRamp ramp_of(const std::function<double(double)>& loss, int steps = 100) {
  LrRampOptions options;
  options.steps = steps;
  LrRamp ramp;
  for (int i = 0; i < steps; ++i) ramp.points.push_back({ramp_rate(options, i), loss(ramp_rate(options, i))});
  judge_ramp(ramp);
  return ramp;
}

TEST(LrRamp, RatesRiseByOneFactor) {
  LrRampOptions options;
  options.low = 1e-4, options.high = 1, options.steps = 21;
  EXPECT_DOUBLE_EQ(ramp_rate(options, 0), 1e-4);
  EXPECT_NEAR(ramp_rate(options, 10), 1e-2, 1e-12);
  EXPECT_NEAR(ramp_rate(options, 20), 1, 1e-12);
}

// A sigmoid in log(lr) falls fastest at its middle, then rises.
TEST(LrRamp, SuggestsWhereTheLossFallsFastest) {
  const auto loss = [](double lr) {
    return 8 - 4 / (1 + std::exp(-4 * std::log10(lr / 3e-3))) + (lr > 0.2 ? 10 * lr : 0);
  };
  const LrRamp ramp = ramp_of(loss, 400);
  ASSERT_TRUE(ramp.suggestion);
  EXPECT_GT(*ramp.suggestion, 1.5e-3);
  EXPECT_LT(*ramp.suggestion, 8e-3);  // the average lags behind
  EXPECT_GT(ramp.points[ramp.lowest].lr, 0.05);
}

TEST(LrRamp, StaysBelowTheLowestLoss) {
  // Falls faster and faster until it explodes.
  const LrRamp ramp = ramp_of([](double lr) { return lr < 0.01 ? 8 - 300 * lr : 20.0; }, 400);
  ASSERT_TRUE(ramp.suggestion);
  EXPECT_LE(*ramp.suggestion, ramp.points[ramp.lowest].lr / 2.9);
}

TEST(LrRamp, SuggestsNothingIfTheLossDoesNotFall) {
  EXPECT_FALSE(ramp_of([](double) { return 8.0; }).suggestion);
  EXPECT_FALSE(ramp_of([](double lr) { return 8 + lr; }).suggestion);
}

TEST(LrRamp, TrainsWithRisingRatesAndWritesNothing) {
  TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  LrRampOptions options;
  options.steps = 40, options.low = 1e-4, options.high = 30;
  const Recipe one = recipe({"train.epochs=100", "some.respawn_threshold=0"});
  const LrRamp ramp = find_lr(one, {}, options), again = find_lr(one, {}, options);
  const bool empty = std::filesystem::is_empty(folder.path());
  std::filesystem::current_path(before);
  EXPECT_TRUE(empty);
  ASSERT_GT(ramp.points.size(), 10U);
  ASSERT_EQ(ramp.points.size(), again.points.size());
  for (std::size_t i = 0; i < ramp.points.size(); ++i) EXPECT_EQ(ramp.points[i].loss, again.points[i].loss) << i;
  EXPECT_NEAR(ramp.points[0].loss, std::log(320), 1);
  EXPECT_LT(ramp.points[ramp.lowest].smoothed, ramp.points[0].loss);
  ASSERT_TRUE(ramp.suggestion);
  EXPECT_GT(*ramp.suggestion, 1e-4);
  EXPECT_LT(*ramp.suggestion, 3);
}

TEST(LrRamp, RefusesImpossibleOptions) {
  for (const auto& [low, high, steps] :
       {std::tuple{0.0, 1.0, 100}, {-1.0, 1.0, 100}, {0.1, 0.1, 100}, {0.1, 1.0, 5}, {0.1, INFINITY, 100}}) {
    LrRampOptions options;
    options.low = low, options.high = high, options.steps = steps;
    EXPECT_TRUE(is_error(error_in([&] { find_lr(recipe(), {}, options); }), Code::option_invalid));
  }
}

}  // namespace
}  // namespace some
