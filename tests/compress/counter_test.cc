// Compares the program's counter (memory/contexts.h) with that of tests/reference/counter.py on the same streams.
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "memory/contexts.h"

namespace some {
namespace {

// Tokens with partial repetitions: stream() of counter.py.
std::vector<std::int32_t> stream(int kind, int length, std::uint64_t vocabulary) {
  std::uint64_t state = 1;
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < length; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::uint64_t draw = state >> 33;
    if (kind == 0 || i < 50 || draw % 8 == 0)
      tokens.push_back(static_cast<std::int32_t>(draw / 8 % vocabulary));
    else
      tokens.push_back(tokens[static_cast<std::size_t>(i - 7 - i / 100 % 3)]);
  }
  return tokens;
}

double counter_loss(std::span<const std::int32_t> tokens, int vocabulary) {
  const ContextSettings settings;
  ContextStore store(settings, vocabulary);
  std::vector<double> estimates(static_cast<std::size_t>(settings.orders()));
  double sum = 0;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const std::size_t known = std::min(i, static_cast<std::size_t>(settings.longest));
    const auto before = tokens.subspan(i - known, known);
    store.estimate(store.find(before), tokens[i], estimates);
    sum -= std::log(estimates.back());
    store.learn(before, tokens[i], -1);
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

TEST(Counter, PredictsAsTheReferenceInPython) {
  EXPECT_NEAR(counter_loss(stream(0, 3000, 20), 20), 3.090015682, 1e-8);
  EXPECT_NEAR(counter_loss(stream(1, 3000, 20), 20), 1.581232141, 1e-8);
  EXPECT_NEAR(counter_loss(stream(1, 3000, 300), 300), 2.136449751, 1e-8);
}

}  // namespace
}  // namespace some
