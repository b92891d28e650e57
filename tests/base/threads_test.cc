#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace some {
namespace {

class Threads : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_threads(GetParam()); }
  void TearDown() override { set_threads(0); }
};

TEST_P(Threads, EveryPieceOnce) {
  for (const std::int64_t pieces : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(pieces));
    parallel_for(pieces, [&](std::int64_t i) { seen[static_cast<std::size_t>(i)] += 1; });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
}

TEST_P(Threads, ChunksCoverWithoutOverlap) {
  for (const std::int64_t n : {0, 1, 9, 10, 11, 1003}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
    parallel_chunks(n, 10, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(begin % 10, 0);
      EXPECT_LE(end - begin, 10);
      for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)] += 1;
    });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
}

TEST_P(Threads, ExceptionsComeOut) {
  EXPECT_THROW(parallel_for(100,
                            [](std::int64_t i) {
                              if (i == 57) throw std::runtime_error("57");
                            }),
               std::runtime_error);
  EXPECT_THROW(parallel_for(1, [](std::int64_t) { throw std::runtime_error("one"); }), std::runtime_error);
  int after = 0;
  parallel_for(1, [&](std::int64_t) { after = 1; });
  EXPECT_EQ(after, 1);
}

TEST_P(Threads, NestedRunsSerially) {
  std::atomic<int> total{0};
  parallel_for(4, [&](std::int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(8, [&](std::int64_t) {
      if (threads() > 1) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
      }
      total += 1;
    });
  });
  EXPECT_EQ(total, 32);
}

INSTANTIATE_TEST_SUITE_P(Counts, Threads, testing::Values(1, 2, 5));

TEST(ThreadCount, ZeroMeansTheMachine) {
  set_threads(0);
  EXPECT_GE(threads(), 1);
  set_threads(3);
  EXPECT_EQ(threads(), 3);
  set_threads(0);
}

}  // namespace
}  // namespace some
