#include "train/rate.h"

#include <gtest/gtest.h>

namespace some {
namespace {

// Counts the steps that Trainer::run_scheduled() would evaluate at.
std::int64_t counted(std::int64_t done, std::int64_t last, std::int64_t per_epoch, std::int64_t every) {
  std::int64_t count = 0;
  for (std::int64_t step = done + 1; step <= last; ++step)
    count += step == last || step % per_epoch == 0 || (every > 0 && step % every == 0);
  return count;
}

TEST(Rate, EvaluationsLeftAreCounted) {
  for (const std::int64_t last : {1, 7, 12, 30}) {
    for (const std::int64_t per_epoch : {1, 4, 6, 12, 100}) {
      for (const std::int64_t every : {0, 1, 4, 6, 9, 1000}) {
        for (std::int64_t done = 0; done <= last; ++done)
          EXPECT_EQ(evaluations_left(done, last, per_epoch, every), counted(done, last, per_epoch, every))
              << done << " of " << last << ", epoch " << per_epoch << ", every " << every;
      }
    }
  }
  constexpr std::int64_t most = std::int64_t{1} << 62;
  EXPECT_EQ(evaluations_left(0, most, most - 1, most - 3), 3);
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
