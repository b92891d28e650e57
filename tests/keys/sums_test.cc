// Additive sums of a step: correct, independent of the split into micro-batches, and the sample for rebirth.
#include "core/error.h"
#include "core/threads.h"
#include "support.h"

namespace some::test {
namespace {

struct PlainSums {
  std::vector<double> counts, gates, queries, together;
  std::int64_t positions = 0;
};

PlainSums plain_sums(const Step& step, const CaseShape& shape) {
  const int E = shape.experts, k = shape.top_k, d = shape.d_model;
  PlainSums out;
  out.counts.assign(static_cast<std::size_t>(E * k), 0);
  out.gates.assign(static_cast<std::size_t>(E), 0);
  out.queries.assign(static_cast<std::size_t>(E * k * d), 0);
  out.together.assign(static_cast<std::size_t>(E * E), 0);
  for (std::size_t t = 0; t < step.queries.size(); ++t) {
    if (!step.targets.empty() && step.targets[t] < 0) continue;
    if (step.stream.uniform(t) >= step.fraction) continue;
    ++out.positions;
    const std::vector<int>& choice = step.choices[t];
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const std::size_t place = static_cast<std::size_t>(choice[i] * k) + i;
      out.counts[place] += 1;
      out.gates[static_cast<std::size_t>(choice[i])] += step.gates[t][i];
      for (int j = 0; j < d; ++j)
        out.queries[place * static_cast<std::size_t>(d) + static_cast<std::size_t>(j)] +=
            step.queries[t][static_cast<std::size_t>(j)];
      for (const int other : choice) {
        if (other != choice[i]) out.together[static_cast<std::size_t>(choice[i] * E + other)] += 1;
      }
    }
  }
  return out;
}

template <typename T>
class KeySumsTest : public testing::Test {};
using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(KeySumsTest, Precisions);

TYPED_TEST(KeySumsTest, AreThoseOfTheTokensHoweverTheStepIsCut) {
  for (const CaseShape& shape :
       {CaseShape{}, CaseShape{300, 20, 4, 9, true}, CaseShape{33, 5, 5, 3, false}, CaseShape{17, 6, 1, 8, true}}) {
    for (const double fraction : {1.0, 0.5}) {
      Step step = random_step(shape, 8, 0);
      step.fraction = fraction;
      for (int t = 0; t < shape.tokens; ++t) step.targets.push_back(t % 3 == 1 ? -1 : 5);
      const PlainSums wanted = plain_sums(step, shape);
      for (const std::int64_t piece : {1, 10, 1000}) {
        Store<TypeParam> store(shape, KeySettings{});
        for (std::int64_t begin = 0; begin < shape.tokens; begin += piece)
          store.add(step, begin, std::min<std::int64_t>(shape.tokens, begin + piece));
        EXPECT_EQ(values(store.sums.slot_counts), wanted.counts);
        EXPECT_EQ(values(store.sums.together), wanted.together);
        EXPECT_EQ(numbers(store.sums.positions)[0], wanted.positions);
        const double tolerance = dtype_of<TypeParam>() == DType::f64 ? 1e-13 : 1e-6;
        EXPECT_LT(largest_error(values(store.sums.gate_sums), wanted.gates), tolerance);
        EXPECT_LT(largest_error(values(store.sums.query_sums), wanted.queries), tolerance);
      }
    }
  }
}

// Sums that no rule reads are neither kept nor computed; the others are the same without them.
TYPED_TEST(KeySumsTest, OnlyWhatARuleReadsIsCollected) {
  CaseShape shape;
  KeySettings still;
  still.use_alpha = still.use_beta = still.use_delta = false;
  Store<TypeParam> all(shape, KeySettings{}), few(shape, still);
  const Step step = random_step(shape, 8, 0);
  all.add(step, 0, shape.tokens);
  few.add(step, 0, shape.tokens);
  EXPECT_FALSE(few.sums.query_sums || few.sums.together || few.sums.sample_priority);
  EXPECT_TRUE(same_bits(all.sums.slot_counts, few.sums.slot_counts));
  EXPECT_TRUE(same_bits(all.sums.gate_sums, few.sums.gate_sums));
  EXPECT_TRUE(same_bits(all.sums.positions, few.sums.positions));
  few.settings.use_beta = true;
  EXPECT_THROW(few.add(step, 0, shape.tokens), Error);
}

TYPED_TEST(KeySumsTest, ClearedSumsAreAsNew) {
  CaseShape shape;
  KeySettings settings;
  settings.respawn_threshold = 0.5;
  Store<TypeParam> used(shape, settings), fresh(shape, settings);
  used.add(random_step(shape, 1, 0), 0, shape.tokens);
  EXPECT_FALSE(same_bits(used.sums.query_sums, fresh.sums.query_sums));
  clear_key_sums(*used.ctx, used.sums);
  for (const auto& [a, b] : {std::pair{used.sums.slot_counts, fresh.sums.slot_counts},
                             {used.sums.gate_sums, fresh.sums.gate_sums},
                             {used.sums.query_sums, fresh.sums.query_sums},
                             {used.sums.together, fresh.sums.together},
                             {used.sums.positions, fresh.sums.positions},
                             {used.sums.sample_priority, fresh.sums.sample_priority},
                             {used.sums.sample_queries, fresh.sums.sample_queries}}) {
    EXPECT_TRUE(same_bits(a, b));
  }
}

TYPED_TEST(KeySumsTest, TheSampleIsTheSameHoweverTheStepIsCut) {
  KeySettings settings;
  settings.respawn_threshold = 0.5;
  for (const int tokens : {3, 9, 100}) {
    CaseShape shape;
    shape.tokens = tokens;
    Step step = random_step(shape, 8, 0);
    step.first_position = 1000;
    Store<TypeParam> whole(shape, settings), cut(shape, settings), backwards(shape, settings);
    whole.add(step, 0, tokens);
    for (int t = 0; t < tokens; t += 4) cut.add(step, t, std::min(t + 4, tokens));
    for (int t = tokens - 1; t >= 0; --t) backwards.add(step, t, t + 1);
    for (const Store<TypeParam>* other : {&cut, &backwards}) {
      EXPECT_TRUE(same_bits(whole.sums.sample_priority, other->sums.sample_priority));
      EXPECT_TRUE(same_bits(whole.sums.sample_queries, other->sums.sample_queries));
    }
    std::vector<std::pair<std::int64_t, int>> order;
    for (int t = 0; t < tokens; ++t) order.emplace_back(sample_priority(step.stream, 1000 + t), t);
    std::sort(order.begin(), order.end());
    for (int n = 0; n < shape.experts; ++n) {
      const std::int64_t priority = numbers(whole.sums.sample_priority)[static_cast<std::size_t>(n)];
      if (n >= tokens) {
        EXPECT_EQ(priority, INT64_MAX);
        continue;
      }
      EXPECT_EQ(priority, order[static_cast<std::size_t>(n)].first);
      EXPECT_LT(largest_error(values(whole.sums.sample_queries.rows(n, n + 1)),
                              step.queries[static_cast<std::size_t>(order[static_cast<std::size_t>(n)].second)]),
                1e-6);
    }
  }
}

TYPED_TEST(KeySumsTest, SameBitsForAnyNumberOfThreads) {
  const CaseShape shape{700, 30, 4, 50, true};
  const Step step = random_step(shape, 6, 0);
  std::vector<Store<TypeParam>> stores;
  for (const int count : {1, 2, 7}) {
    stores.emplace_back(shape, KeySettings{}, 5, count);
    stores.back().add(step, 0, shape.tokens);
  }
  for (const int n : {1, 2}) {
    EXPECT_TRUE(same_bits(stores[0].sums.query_sums, stores[static_cast<std::size_t>(n)].sums.query_sums));
    EXPECT_TRUE(same_bits(stores[0].sums.gate_sums, stores[static_cast<std::size_t>(n)].sums.gate_sums));
    EXPECT_TRUE(same_bits(stores[0].sums.together, stores[static_cast<std::size_t>(n)].sums.together));
  }
}

TYPED_TEST(KeySumsTest, RefuseChoicesThatDoNotExistAndShapesThatDoNotFit) {
  CaseShape shape;
  Store<TypeParam> store(shape, KeySettings{});
  Step step = random_step(shape, 1, 0);
  step.choices[4][1] = shape.experts;
  EXPECT_THROW(store.add(step, 0, shape.tokens), Error);
  CaseShape wide = shape;
  wide.top_k = 5;
  EXPECT_THROW(store.add(random_step(wide, 1, 0), 0, shape.tokens), Error);
}

TEST(TakesPart, IsAFractionAndEverybodyAtOne) {
  const RandomStream stream = random_stream(1, "keys.0.0");
  int taken = 0;
  for (int p = 0; p < 20000; ++p) {
    EXPECT_TRUE((UpdateScheduleRule::Plan{true, 1.0, stream}.takes_part(p)));
    EXPECT_FALSE((UpdateScheduleRule::Plan{true, 0.0, stream}.takes_part(p)));
    taken += UpdateScheduleRule::Plan{true, 0.3, stream}.takes_part(p);
  }
  EXPECT_NEAR(taken, 6000, 400);
}

}  // namespace
}  // namespace some::test
