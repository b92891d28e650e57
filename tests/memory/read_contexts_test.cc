// Contexts of a memory while it reads: their contributions, causality and gain.
#include <numeric>

#include "expect_error.h"
#include "memory/memory_file.h"
#include "memory/predictions.h"
#include "memory_fixture.h"

namespace some::test {
namespace {

// The probability that a context gives a token follows from its entries, which also have the places where it followed.
TEST(Contexts, ContributeWithTheirPlaces) {
  Fixture fixture;
  MemorySettings settings = small_settings();
  settings.contexts = 4;
  Memory memory = fixture.memory(settings);
  const std::vector<std::int32_t> text = Fixture::words(800, 5);
  learn_text(*fixture.model, memory, "a", text, 800, {});
  MemoryPredictions answers(*fixture.ctx, memory, {});
  answers.set_mixtures({memory.mixture});
  int found = 0;
  for (std::size_t t = 700; t < 760; ++t) {
    const auto before = std::span(text).subspan(t - 4, 4);
    for (const ContextContribution& one : answers.contexts_of(0, before, text[t])) {
      ++found;
      EXPECT_GT(one.weight, 0);
      EXPECT_GE(one.seen, 1);
      for (const std::int64_t packed_place : {one.born, one.hit}) {
        const Place place = unpacked(packed_place);
        const auto at = static_cast<std::size_t>(place.offset);
        ASSERT_EQ(place.text, 0);
        EXPECT_EQ(text[at], text[t]);
        for (int i = 1; i <= one.tokens; ++i)
          EXPECT_EQ(text[at - static_cast<std::size_t>(i)], text[t - static_cast<std::size_t>(i)]);
      }
    }
  }
  EXPECT_GT(found, 100);
}

// The loss of a position depends on nothing after it, for any windows and passes.
TEST(Contexts, AreCausalAndLearntAfterEveryToken) {
  MemorySettings settings = small_settings();
  settings.contexts = 5;
  const auto losses = [&](const std::vector<std::int32_t>& text, std::int64_t window) {
    Fixture fixture;
    MemorySettings own = settings;
    own.window = window;
    Memory memory = fixture.memory(own);
    std::vector<double> out;
    learn_text(*fixture.model, memory, "a", text, std::ssize(text), [&](auto windows, auto) {
      for (const WindowResult& one : windows) out.push_back(one.mixed);
      return true;
    });
    return out;
  };
  const std::vector<std::int32_t> text = Fixture::words(400, 5);
  const std::vector<double> before = losses(text, 1);
  for (const std::size_t changed : {50, 200, 399}) {
    std::vector<std::int32_t> other = text;
    other[changed] = other[changed] == 3 ? 4 : 3;
    const std::vector<double> after = losses(other, 1);
    for (std::size_t t = 1; t < changed; ++t) ASSERT_EQ(before[t - 1], after[t - 1]) << t << " of " << changed;
    EXPECT_NE(before[changed - 1], after[changed - 1]);
  }
}

// Reading with contexts has a lower loss than reading with slots only, on a text with repetitions.
TEST(Contexts, GainOverStates) {
  const std::vector<std::int32_t> text = Fixture::words(2000, 5);
  double sum[2] = {};
  for (const int contexts : {0, 4}) {
    Fixture fixture;
    MemorySettings settings = small_settings();
    settings.contexts = contexts;
    Memory memory = fixture.memory(settings);
    learn_text(*fixture.model, memory, "a", text, 2000, [&](auto windows, auto) {
      for (const WindowResult& one : windows) sum[contexts > 0] += one.mixed;
      return true;
    });
  }
  EXPECT_LT(sum[1], 0.95 * sum[0]);
}

TEST(Contexts, OfOtherLengthsAreNotMerged) {
  Fixture fixture;
  MemorySettings settings = small_settings();
  settings.contexts = 4;
  Memory memory = fixture.memory(settings), none = fixture.memory(small_settings());
  settings.contexts = 5;
  const Memory other = fixture.memory(settings);
  EXPECT_ERROR(merge(*fixture.ctx, memory, other), Code::memory_settings, "4", "5");
  EXPECT_NO_THROW(merge(*fixture.ctx, none, other));
  EXPECT_NO_THROW(merge(*fixture.ctx, memory, none));
}

}  // namespace
}  // namespace some::test
