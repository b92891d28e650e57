#include "text/word_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace some {
namespace {

TEST(WordCounts, CountsAsAMap) {
  std::mt19937 dice(4);
  std::map<std::string, std::uint64_t> expected;
  WordCounts counts;
  for (int i = 0; i < 100000; ++i) {
    std::string word = std::to_string(dice() % 30000);
    if (i % 20000 == 0) word = std::string((1u << 20) + dice() % 1000, 'x');  // longer than a chunk
    const std::uint64_t times = 1 + dice() % 3;
    expected[word] += times;
    counts.add(word, times);
  }
  counts.add("");
  expected[""] = 1;
  counts.finish();
  std::size_t bytes = 0;
  for (const auto& [word, count] : counts.entries()) {
    ASSERT_EQ(expected.at(std::string(word)), count);
    bytes += word.size();
  }
  EXPECT_EQ(counts.entries().size(), expected.size());
  EXPECT_EQ(counts.bytes(), bytes);
}

}  // namespace
}  // namespace some
