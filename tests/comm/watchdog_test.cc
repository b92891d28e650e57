#include "comm/watchdog.h"

#include <gtest/gtest.h>

namespace some {
namespace {

SilenceTimer::Time at(int milliseconds) { return SilenceTimer::Time() + std::chrono::milliseconds(milliseconds); }

TEST(SilenceTimer, LastsFromTheLastSign) {
  SilenceTimer quiet(0.5, at(0));
  EXPECT_DOUBLE_EQ(quiet.record_poll(false, at(500)), 0.5);
  EXPECT_DOUBLE_EQ(quiet.record_poll(false, at(1000)), 1.0);
  EXPECT_DOUBLE_EQ(quiet.record_poll(true, at(1500)), 0);
  EXPECT_DOUBLE_EQ(quiet.record_poll(false, at(2250)), 0.75);
}

// A listener that was stopped for ten seconds adds none of that time to the silence: it neither considers the others
// lost at once nor restarts the timeout.
TEST(SilenceTimer, DoesNotCountTimeWithoutChecks) {
  SilenceTimer quiet(0.5, at(0));
  for (int time = 500; time <= 3000; time += 500) quiet.record_poll(false, at(time));
  EXPECT_DOUBLE_EQ(quiet.record_poll(false, at(13000)), 3.5);
  EXPECT_DOUBLE_EQ(quiet.record_poll(false, at(13500)), 4.0);
  EXPECT_DOUBLE_EQ(quiet.record_poll(true, at(30000)), 0);
}

// A small delay does not count as stopped: on a busy machine every poll is late.
TEST(SilenceTimer, CountsChecksThatAreALittleLate) {
  SilenceTimer quiet(0.5, at(0));
  double silence = 0;
  for (int time = 1200; time <= 12000; time += 1200) silence = quiet.record_poll(false, at(time));
  EXPECT_DOUBLE_EQ(silence, 12);
}

}  // namespace
}  // namespace some
