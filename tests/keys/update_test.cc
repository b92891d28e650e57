// Compares every setting of the key update, separately and combined, with the token-by-token reference.
#include <functional>
#include <set>

#include "core/error.h"
#include "core/threads.h"
#include "support.h"

namespace some::test {
namespace {

// Strong rules and an early decay, so that every rule moves keys visibly within a few steps.
KeySettings strong() {
  KeySettings settings;
  settings.alpha = 0.05;
  settings.beta = 0.02;
  settings.delta = 0.1;
  settings.theta_percentile = 0.35;
  settings.decay_warmup = 1;
  return settings;
}

struct Variation {
  std::string name;
  std::function<void(KeySettings&)> change;
};

const std::vector<Variation>& variations() {
  static const std::vector<Variation> all = {
      {"nothing", [](KeySettings&) {}},
      {"use_alpha", [](KeySettings& s) { s.use_alpha = false; }},
      {"use_beta", [](KeySettings& s) { s.use_beta = false; }},
      {"use_delta", [](KeySettings& s) { s.use_delta = false; }},
      {"alpha_floor", [](KeySettings& s) { s.alpha_floor = 0.045; }},
      {"beta_inertia", [](KeySettings& s) { s.beta_inertia = BetaInertia::max; }},
      {"clip_delta", [](KeySettings& s) { s.clip_delta = 0.1; }},
      {"cumulative", [](KeySettings& s) { s.usage = Usage::cumulative; }},
      {"flux", [](KeySettings& s) { s.usage = Usage::flux; }},
      {"ema_decay", [](KeySettings& s) { s.ema_decay = 0.5; }},
      {"normalize_used", [](KeySettings& s) { s.constraint = Constraint::normalize_used; }},
      {"clamp", [](KeySettings& s) { s.constraint = Constraint::clamp; }},
      {"free", [](KeySettings& s) { s.constraint = Constraint::free; }},
      {"constraint last", [](KeySettings& s) { s.constraint_order = ConstraintOrder::last; }},
      {"clamp last",
       [](KeySettings& s) { s.constraint = Constraint::clamp, s.constraint_order = ConstraintOrder::last; }},
      {"theta", [](KeySettings& s) { s.theta = 0.5; }},
      {"theta zero", [](KeySettings& s) { s.theta = 0.0; }},
      {"theta_percentile 1", [](KeySettings& s) { s.theta_percentile = 1.0; }},
      {"theta_percentile 0", [](KeySettings& s) { s.theta_percentile = 0.0; }},
      {"decay_warmup", [](KeySettings& s) { s.decay_warmup = 3; }},
      {"key_ema", [](KeySettings& s) { s.key_ema = 0.8; }},
      {"balance_rate", [](KeySettings& s) { s.balance_rate = 0.01; }},
      {"balance alone", [](KeySettings& s) { s.use_alpha = s.use_beta = s.use_delta = false, s.balance_rate = 0.002; }},
      {"balance with slack", [](KeySettings& s) { s.balance_rate = 0.01, s.balance_slack = 0.37; }},
      {"balance and phoenix",
       [](KeySettings& s) { s.constraint = Constraint::clamp, s.respawn_threshold = 0.3, s.balance_rate = 0.01; }},
      {"phoenix", [](KeySettings& s) { s.constraint = Constraint::clamp, s.respawn_threshold = 0.3; }},
      {"phoenix and key_ema",
       [](KeySettings& s) { s.constraint = Constraint::clamp, s.respawn_threshold = 0.3, s.key_ema = 0.8; }},
  };
  return all;
}

template <typename T>
Store<T> follow(const CaseShape& shape, const KeySettings& settings, double fraction, bool with_targets, int steps,
                const std::string& what, std::uint64_t seed = 11, std::int64_t piece = 0) {
  Store<T> store(shape, settings);
  Reference reference = store.reference();
  for (int n = 0; n < steps; ++n) {
    Step step = random_step(shape, seed, n);
    step.fraction = fraction;
    step.beta = settings.beta;
    if (with_targets) {
      for (int t = 0; t < shape.tokens; ++t) step.targets.push_back(t % 5 == 2 ? -1 : t);
    }
    store.update(step, piece);
    reference.update(step);
    expect_equal(store, reference, what + ", step " + std::to_string(n));
    if (testing::Test::HasFailure()) break;
  }
  return store;
}

template <typename T>
class KeyUpdate : public testing::Test {};
using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(KeyUpdate, Precisions);

TYPED_TEST(KeyUpdate, EverySettingAlone) {
  for (const Variation& variation : variations()) {
    KeySettings settings = strong();
    variation.change(settings);
    follow<TypeParam>({}, settings, 1.0, false, 6, variation.name);
  }
}

// A setting without effect would pass the comparison above without being tested.
TEST(KeyUpdateTest, EverySettingMakesADifference) {
  const Store<double> plain = follow<double>({}, strong(), 1.0, false, 6, "plain");
  for (const Variation& variation : variations()) {
    if (variation.name == "nothing") continue;
    KeySettings settings = strong();
    variation.change(settings);
    const Store<double> other = follow<double>({}, settings, 1.0, false, 6, variation.name);
    EXPECT_FALSE(same_bits(plain.state, other.state)) << variation.name;
    EXPECT_EQ(numbers(other.state.counts)[0] > 0, settings.respawn_threshold > 0) << variation.name;
  }
}

TYPED_TEST(KeyUpdate, PaddingAndAFractionOfThePositions) {
  follow<TypeParam>({}, strong(), 1.0, true, 5, "targets");
  follow<TypeParam>({}, strong(), 0.4, false, 5, "fraction");
  follow<TypeParam>({}, strong(), 0.4, true, 5, "both");
}

TYPED_TEST(KeyUpdate, Shapes) {
  for (const CaseShape& shape :
       {CaseShape{1, 1, 1, 1, false}, CaseShape{1, 5, 2, 7, true}, CaseShape{30, 6, 1, 5, true},
        CaseShape{30, 6, 6, 5, false}, CaseShape{200, 33, 4, 17, true}, CaseShape{7, 40, 3, 64, true}}) {
    const std::string name = std::to_string(shape.experts) + " experts, k " + std::to_string(shape.top_k);
    follow<TypeParam>(shape, strong(), 1.0, false, 4, name);
    KeySettings settings = strong();
    settings.usage = Usage::flux;
    settings.constraint = Constraint::clamp;
    settings.respawn_threshold = 0.3;
    follow<TypeParam>(shape, settings, 1.0, false, 4, name + ", flux and phoenix");
  }
}

// 300 random combinations of all settings.
TEST(KeyUpdateTest, Combinations) {
  for (std::uint64_t number = 0; number < 300; ++number) {
    const RandomStream stream = random_stream(number, "test.combination");
    std::uint64_t next = 0;
    const auto pick = [&](std::uint32_t bound) { return stream.below(next++, bound); };
    KeySettings s = strong();
    s.use_alpha = pick(5) != 0;
    s.use_beta = pick(5) != 0;
    s.use_delta = pick(5) != 0;
    s.alpha_floor = pick(3) == 0 ? 0.03 : 0.0;
    s.beta_inertia = pick(2) == 0 ? BetaInertia::min : BetaInertia::max;
    s.clip_delta = pick(3) == 0 ? 0.15 : 0.0;
    s.usage = std::vector{Usage::ema, Usage::cumulative, Usage::flux}[pick(3)];
    s.ema_decay = std::vector{0.99, 0.5, 0.0}[pick(3)];
    s.theta_percentile = std::vector{0.05, 0.35, 0.7, 1.0}[pick(4)];
    s.theta = pick(4) == 0 ? 0.4 : -1.0;
    s.decay_warmup = pick(4);
    s.constraint =
        std::vector{Constraint::normalize, Constraint::normalize_used, Constraint::clamp, Constraint::free}[pick(4)];
    s.constraint_order = pick(2) == 0 ? ConstraintOrder::before_decay : ConstraintOrder::last;
    s.key_ema = pick(3) == 0 ? 0.7 : 0.0;
    s.respawn_threshold = pick(3) == 0 ? 0.35 : 0.0;
    s.balance_rate = pick(2) == 0 ? 0.01 : 0.0;
    s.balance_slack = pick(2) == 0 ? 0.29 : 0.0;
    s.use_balance = pick(4) != 0;
    CaseShape shape;
    shape.experts = 2 + static_cast<int>(pick(14));
    shape.top_k = 1 + static_cast<int>(pick(static_cast<std::uint32_t>(shape.experts)));
    shape.tokens = 1 + static_cast<int>(pick(60));
    shape.d_model = 2 + static_cast<int>(pick(20));
    shape.some_idle = pick(2) == 0;
    const double fraction = pick(3) == 0 ? 0.6 : 1.0;
    const bool with_targets = pick(2) == 0;
    const std::int64_t piece = pick(2) == 0 ? 0 : 1 + pick(20);
    follow<double>(shape, s, fraction, with_targets, 5, "combination " + std::to_string(number), number, piece);
    if (HasFailure()) break;
  }
}

// topk_warmup: routing with one choice, in sums with room for k.
TYPED_TEST(KeyUpdate, FewerChoicesThanSlots) {
  for (const Usage usage : {Usage::ema, Usage::cumulative, Usage::flux}) {
    CaseShape wide, narrow;
    narrow.top_k = 1;
    KeySettings settings = strong();
    settings.usage = usage;
    Store<TypeParam> store(wide, settings);
    Reference reference = store.reference();
    for (int n = 0; n < 4; ++n) {
      Step step = random_step(n < 2 ? narrow : wide, 3, n);
      step.beta = settings.beta;
      store.update(step);
      reference.update(step);
      expect_equal(store, reference, "step " + std::to_string(n));
    }
  }
}

// The keys after a step do not depend on its split into micro-batches, beyond rounding.
TYPED_TEST(KeyUpdate, MicroBatchesChangeNothing) {
  for (const Variation& variation : variations()) {
    KeySettings settings = strong();
    variation.change(settings);
    CaseShape shape;
    shape.tokens = 64;
    Store<TypeParam> whole(shape, settings);
    for (const std::int64_t piece : {1, 7, 32}) {
      Store<TypeParam> cut(shape, settings);
      whole.state = make_key_state(*whole.ctx, shape.experts, shape.d_model, 5, 0, settings);
      for (int n = 0; n < 3; ++n) {
        Step step = random_step(shape, 21, n);
        step.fraction = 0.8;
        step.beta = settings.beta;
        whole.update(step);
        cut.update(step, piece);
      }
      const double tolerance = dtype_of<TypeParam>() == DType::f64 ? 1e-13 : 1e-6;
      EXPECT_LT(largest_error(values(cut.state.keys), values(whole.state.keys)), tolerance) << variation.name;
      EXPECT_LT(largest_error(values(cut.state.usage), values(whole.state.usage)), tolerance) << variation.name;
      EXPECT_LT(largest_error(values(cut.state.mass), values(whole.state.mass)), tolerance) << variation.name;
      EXPECT_TRUE(same_bits(cut.state.counts, whole.state.counts)) << variation.name;
    }
  }
}

TYPED_TEST(KeyUpdate, SameBitsForAnyNumberOfThreads) {
  KeySettings settings = strong();
  settings.constraint = Constraint::clamp;
  settings.respawn_threshold = 0.3;
  settings.key_ema = 0.5;
  settings.clip_delta = 0.3;
  const CaseShape shape{500, 40, 4, 37, true};
  std::vector<Store<TypeParam>> stores;
  for (const int count : {1, 2, 7}) {
    Store<TypeParam> store(shape, settings, 5, count);
    for (int n = 0; n < 3; ++n) {
      Step step = random_step(shape, 2, n);
      step.beta = settings.beta;
      store.update(step, 170);
    }
    stores.push_back(std::move(store));
  }
  EXPECT_TRUE(same_bits(stores[0].state, stores[1].state));
  EXPECT_TRUE(same_bits(stores[0].state, stores[2].state));
}

TYPED_TEST(KeyUpdate, OnlyTheCounterMovesWhenNobodyTakesPart) {
  for (const Variation& variation : variations()) {
    KeySettings settings = strong();
    variation.change(settings);
    CaseShape shape;
    Store<TypeParam> store(shape, settings);
    Step step = random_step(shape, 1, 0);
    step.beta = settings.beta;
    store.update(step);
    store.update(step);
    const KeyState before = copy_of(store.state);
    step.targets.assign(static_cast<std::size_t>(shape.tokens), -1);
    store.update(step);
    EXPECT_EQ(store.state.steps, before.steps + 1);
    EXPECT_TRUE(same_bits(store.state.keys, before.keys)) << variation.name;
    EXPECT_TRUE(same_bits(store.state.usage, before.usage)) << variation.name;
    EXPECT_TRUE(same_bits(store.state.mass, before.mass)) << variation.name;
    EXPECT_TRUE(same_bits(store.state.average, before.average)) << variation.name;
    EXPECT_EQ(numbers(store.state.counts)[0], numbers(before.counts)[0]);
    EXPECT_EQ(numbers(store.state.counts)[1], numbers(before.counts)[1]);
    EXPECT_EQ(numbers(store.state.counts)[3], 0);
  }
}

TYPED_TEST(KeyUpdate, AnExpertNobodyChoseStaysWhereItIs) {
  KeySettings settings = strong();
  settings.use_delta = false;
  settings.constraint = Constraint::normalize_used;
  CaseShape shape;
  Store<TypeParam> store(shape, settings);
  const KeyState before = copy_of(store.state);
  Step step = random_step(shape, 1, 0);
  step.beta = settings.beta;
  store.update(step);
  const std::int64_t last = shape.experts - 1;
  EXPECT_TRUE(same_bits(store.state.keys.rows(last, last + 1), before.keys.rows(last, last + 1)));
  EXPECT_FALSE(same_bits(store.state.keys.rows(0, 1), before.keys.rows(0, 1)));
  EXPECT_EQ(values(store.state.usage)[static_cast<std::size_t>(last)], 0.0);
}

TYPED_TEST(KeyUpdate, WithOneChoiceBetaDoesNothing) {
  CaseShape shape;
  shape.top_k = 1;
  KeySettings with = strong(), without = strong();
  without.use_beta = false;
  Store<TypeParam> a(shape, with), b(shape, without);
  Step step = random_step(shape, 1, 0);
  step.beta = 0.5;
  a.update(step);
  b.update(step);
  EXPECT_LT(largest_error(values(a.state.keys), values(b.state.keys)), 1e-7);
}

TYPED_TEST(KeyUpdate, PhoenixFindsDistinctPositionsAndForgetsUsage) {
  CaseShape shape{50, 12, 3, 16, true};
  KeySettings settings = strong();
  settings.use_alpha = settings.use_beta = settings.use_delta = false;
  settings.constraint = Constraint::free;
  settings.respawn_threshold = 0.5;
  Store<TypeParam> store(shape, settings);
  const std::vector<std::int64_t> dead = {2, 5, 11};
  for (const std::int64_t e : dead) {
    for (int j = 0; j < shape.d_model; ++j)
      store.state.keys.template data<TypeParam>()[e * shape.d_model + j] *= TypeParam(0.4);
  }
  const KeyState before = copy_of(store.state);
  const Step step = random_step(shape, 4, 0);
  store.update(step);
  EXPECT_EQ(numbers(store.state.counts), (std::vector<std::int64_t>{3, 3, 3, 50}));
  std::set<std::size_t> positions;
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const std::vector<double> key = values(store.state.keys.rows(e, e + 1));
    if (std::find(dead.begin(), dead.end(), e) == dead.end()) {
      EXPECT_TRUE(same_bits(store.state.keys.rows(e, e + 1), before.keys.rows(e, e + 1)));
      continue;
    }
    EXPECT_NEAR(length(key), 1.0, 1e-6);
    EXPECT_EQ(values(store.state.usage)[static_cast<std::size_t>(e)], 0.0);
    EXPECT_EQ(values(store.state.mass)[static_cast<std::size_t>(e)], 0.0);
    for (std::size_t t = 0; t < step.queries.size(); ++t) {
      double dot = 0;
      for (std::size_t j = 0; j < key.size(); ++j) dot += key[j] * step.queries[t][j];
      if (dot > 0.99) positions.insert(t);  // noise of 0.01 in each of 16 directions
    }
  }
  EXPECT_EQ(positions.size(), dead.size());
  store.update(random_step(shape, 4, 1));
  EXPECT_EQ(numbers(store.state.counts), (std::vector<std::int64_t>{3, 3, 0, 50}));
}

TYPED_TEST(KeyUpdate, PhoenixWaitsWhenThereAreFewerPositionsThanDeadKeys) {
  CaseShape shape{2, 6, 1, 8, true};
  KeySettings settings = strong();
  settings.use_alpha = settings.use_beta = settings.use_delta = false;
  settings.constraint = Constraint::free;
  settings.respawn_threshold = 0.5;
  Store<TypeParam> store(shape, settings);
  for (int j = 0; j < 3 * shape.d_model; ++j) store.state.keys.template data<TypeParam>()[j] *= TypeParam(0.1);
  const KeyState before = copy_of(store.state);
  store.update(random_step(shape, 4, 0));
  EXPECT_TRUE(same_bits(store.state.keys, before.keys));
  EXPECT_EQ(numbers(store.state.counts), (std::vector<std::int64_t>{0, 3, 3, 2}));
  shape.tokens = 3;  // as many positions as dead keys: enough
  store.update(random_step(shape, 4, 1));
  EXPECT_EQ(numbers(store.state.counts), (std::vector<std::int64_t>{3, 6, 3, 3}));
}

TYPED_TEST(KeyUpdate, KeysAreDrawnFromTheirStreamAndHaveLengthOne) {
  auto ctx = make_context("cpu", dtype_of<TypeParam>() == DType::f64 ? "f64" : "fp32");
  KeySettings settings;
  const KeyState a = make_key_state(*ctx, 20, 30, 9, 1, settings), b = make_key_state(*ctx, 20, 30, 9, 1, settings);
  EXPECT_TRUE(same_bits(a, b));
  EXPECT_FALSE(same_bits(a.keys, make_key_state(*ctx, 20, 30, 9, 2, settings).keys));
  EXPECT_FALSE(same_bits(a.keys, make_key_state(*ctx, 20, 30, 8, 1, settings).keys));
  EXPECT_FALSE(a.average);
  EXPECT_EQ(a.routing_keys().raw(), a.keys.raw());
  const RandomStream stream = random_stream(9, "layers.1.keys");
  for (std::int64_t e = 0; e < 20; ++e) {
    const std::vector<double> key = values(a.keys.rows(e, e + 1));
    EXPECT_NEAR(length(key), 1.0, 1e-6);
    EXPECT_NEAR(
        key[3] / key[7],
        stream.normal(static_cast<std::uint64_t>(e * 30 + 3)) / stream.normal(static_cast<std::uint64_t>(e * 30 + 7)),
        1e-4 * std::fabs(key[3] / key[7]));
  }
  settings.key_ema = 0.9;
  const KeyState averaged = make_key_state(*ctx, 20, 30, 9, 1, settings);
  EXPECT_TRUE(same_bits(averaged.average, a.keys));
  EXPECT_NE(averaged.routing_keys().raw(), averaged.keys.raw());
}

// The keys of a partition share a vector (spec 3.3).
TYPED_TEST(KeyUpdate, InitialKeysOfAPartitionAreNearEachOther) {
  auto ctx = make_context("cpu", dtype_of<TypeParam>() == DType::f64 ? "f64" : "fp32");
  constexpr int experts = 22, size = 30, partitions = 4;
  const KeyState state = make_key_state(*ctx, experts, size, 9, 1, KeySettings(), partitions);
  const RandomStream own = random_stream(9, "layers.1.keys"), common = random_stream(9, "layers.1.key_partitions");
  double inside = 0, outside = 0;
  int pairs_inside = 0, pairs_outside = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::vector<double> key = values(state.keys.rows(e, e + 1));
    EXPECT_NEAR(length(key), 1.0, 1e-6);
    std::int64_t p = 0;
    while (e >= (p + 1) * experts / partitions) ++p;
    const auto number = [&](std::int64_t j) {
      return static_cast<double>(own.normal(static_cast<std::uint64_t>(e * size + j))) +
             static_cast<double>(common.normal(static_cast<std::uint64_t>(p * size + j)));
    };
    EXPECT_NEAR(key[3] / key[7], number(3) / number(7), 1e-4 * std::fabs(key[3] / key[7]));
    for (std::int64_t f = 0; f < e; ++f) {
      const std::vector<double> other = values(state.keys.rows(f, f + 1));
      double cosine = 0;
      for (std::size_t j = 0; j < key.size(); ++j) cosine += key[j] * other[j];
      const bool together = f >= p * experts / partitions;
      (together ? inside : outside) += cosine;
      (together ? pairs_inside : pairs_outside) += 1;
    }
  }
  EXPECT_NEAR(inside / pairs_inside, 0.5, 0.1);
  EXPECT_NEAR(outside / pairs_outside, 0, 0.1);
  EXPECT_TRUE(same_bits(make_key_state(*ctx, experts, size, 9, 1, KeySettings(), 1).keys,
                        make_key_state(*ctx, experts, size, 9, 1, KeySettings()).keys));
}

TEST(KeyUpdateTest, RefusesStateAndSumsThatLackWhatASettingNeeds) {
  CaseShape shape;
  Store<float> store(shape, strong());
  const Step step = random_step(shape, 1, 0);
  store.settings.key_ema = 0.5;
  EXPECT_THROW(store.update(step), Error);
  store.settings = strong();
  store.settings.balance_rate = 0.01;
  EXPECT_THROW(store.update(step), Error);
  store.settings = strong();
  store.settings.respawn_threshold = 0.5;
  EXPECT_THROW(store.update(step), Error);
}

TEST(AnnealTest, Shapes) {
  EXPECT_EQ((Anneal{AnnealShape::none, 3.0, 4.0}.at(0.5)), 1.0);
  const Anneal linear{AnnealShape::linear, 1.0, 0.2}, cosine{AnnealShape::cosine, 1.0, 0.2},
      exponential{AnnealShape::exponential, 1.0, 0.01};
  for (const Anneal& anneal : {linear, cosine, exponential}) {
    EXPECT_NEAR(anneal.at(0.0), anneal.start, 1e-15);
    EXPECT_NEAR(anneal.at(1.0), anneal.end, 1e-15);
    EXPECT_EQ(anneal.at(-1.0), anneal.at(0.0));
    EXPECT_EQ(anneal.at(2.0), anneal.at(1.0));
    for (double p = 0.1; p < 1.05; p += 0.1) EXPECT_LT(anneal.at(p), anneal.at(p - 0.1));
  }
  EXPECT_NEAR(linear.at(0.25), 0.8, 1e-15);
  EXPECT_NEAR(cosine.at(0.5), 0.6, 1e-15);
  EXPECT_NEAR(exponential.at(0.5), 0.1, 1e-15);
  EXPECT_THROW((Anneal{AnnealShape::exponential, 1.0, 0.0}.at(0.5)), Error);
}

}  // namespace
}  // namespace some::test
