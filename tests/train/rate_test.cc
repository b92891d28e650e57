#include "train/rate.h"

#include <gtest/gtest.h>

#include <vector>

namespace some {
namespace {

// Counts the steps that Trainer::run_scheduled() would evaluate at.
std::int64_t counted(std::int64_t done, std::int64_t last, std::int64_t per_epoch, std::int64_t every) {
  std::int64_t count = 0;
  for (std::int64_t step = done + 1; step <= last; ++step)
    count += step == last || step % per_epoch == 0 || evaluation_is_due(step, last, every);
  return count;
}

TEST(Rate, EvaluationsLeftAreCounted) {
  for (const std::int64_t last : {1, 7, 12, 30, 260}) {
    for (const std::int64_t per_epoch : {1, 4, 6, 12, 100}) {
      for (const std::int64_t every : {0, 1, 4, 6, 9, 1000, -1, -7, -10, -1000}) {
        for (std::int64_t done = 0; done <= last; ++done)
          EXPECT_EQ(evaluations_left(done, last, per_epoch, every), counted(done, last, per_epoch, every))
              << done << " of " << last << ", epoch " << per_epoch << ", every " << every;
      }
    }
  }
  constexpr std::int64_t most = std::int64_t{1} << 62;
  EXPECT_EQ(evaluations_left(0, most, most - 1, most - 3), 3);
}

TEST(Rate, EvaluationsAreAtEqualDistances) {
  const auto steps = [](std::int64_t last, std::int64_t every) {
    std::vector<std::int64_t> out;
    for (std::int64_t step = 1; step <= last; ++step) {
      if (evaluation_is_due(step, last, every)) out.push_back(step);
    }
    return out;
  };
  EXPECT_EQ(steps(918, -10), (std::vector<std::int64_t>{92, 184, 276, 368, 459, 551, 643, 735, 827, 918}));
  EXPECT_EQ(steps(60, -10), (std::vector<std::int64_t>{30, 60})) << "at least 25 steps apart";
  EXPECT_TRUE(steps(20, -10).empty());
  EXPECT_EQ(steps(10, 4), (std::vector<std::int64_t>{4, 8}));
  EXPECT_TRUE(steps(10, 0).empty());
}

TEST(Rate, PausesAreEstimatedUntilOneWasMeasured) {
  PauseMeter pauses;
  RateMeter::Rates training;
  training.tokens = 100;
  EXPECT_DOUBLE_EQ(pauses.seconds(600, training), 2);  // a third of the time of training on them
  pauses.add(3, 300);
  pauses.add(1, 100);
  EXPECT_DOUBLE_EQ(pauses.seconds(600, training), 6);
}

}  // namespace
}  // namespace some
