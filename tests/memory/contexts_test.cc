// Contexts and their mixture (spec 8): the store against plain tables, sums over the vocabulary, eviction, files.
#include "memory/contexts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "core/random.h"
#include "kneser_ney.h"
#include "memory/context_mixture.h"

namespace some {
namespace {

// A text of few tokens with occasional repetitions, so that long contexts recur.
std::vector<std::int32_t> text_of(std::uint64_t seed, std::size_t length, int vocabulary) {
  const RandomStream stream = random_stream(seed, "contexts");
  std::vector<std::int32_t> out;
  for (std::uint64_t n = 0; out.size() < length; n += 3) {
    if (out.size() > 40 && stream.uniform(n) < 0.08) {
      const auto from = static_cast<std::size_t>(stream.uniform(n + 1) * static_cast<double>(out.size() - 20));
      const auto count = static_cast<std::size_t>(stream.uniform(n + 2) * 18);
      for (std::size_t i = 0; i < count; ++i) out.push_back(out[from + i]);
    } else {
      const double u = stream.uniform(n + 1);
      out.push_back(static_cast<std::int32_t>(u * u * vocabulary));
    }
  }
  out.resize(length);
  return out;
}

std::span<const std::int32_t> before(const std::vector<std::int32_t>& text, std::size_t i, int longest) {
  const std::size_t first = i > static_cast<std::size_t>(longest) ? i - static_cast<std::size_t>(longest) : 0;
  return std::span(text).subspan(first, i - first);
}

ContextStore learned(ContextStore store, const std::vector<std::int32_t>& text, std::size_t from, std::size_t to) {
  const ContextSettings& settings = store.settings();
  for (std::size_t i = from; i < to; ++i)
    store.learn(before(text, i, settings.longest), text[i], static_cast<std::int64_t>(i));
  return store;
}

TEST(Contexts, EstimateWhatPlainTablesEstimate) {
  for (const int longest : {0, 1, 3, 5}) {
    const int vocabulary = 23;
    const ContextSettings settings{.longest = longest, .entries = 1 << 20};
    ContextStore store(settings, vocabulary);
    KneserNey plain(longest, vocabulary);
    std::vector<double> out(static_cast<std::size_t>(settings.orders())), all;
    for (const std::uint64_t seed : {1, 2}) {  // two texts, one after another
      const std::vector<std::int32_t> text = text_of(seed, 700, vocabulary);
      for (std::size_t i = 0; i < text.size(); ++i) {
        const auto context = before(text, i, longest);
        const ContextMatch match = store.find(context);
        store.estimate(match, text[i], out);
        const std::vector<double> expected = plain.estimates(context, text[i]);
        for (std::size_t k = 0; k < out.size(); ++k) ASSERT_NEAR(out[k], expected[k], 1e-12) << i << " order " << k;
        if (i % 50 == 0) {
          store.distributions(match, all);
          for (std::size_t k = 0; k < out.size(); ++k) {
            const double* row = all.data() + k * static_cast<std::size_t>(vocabulary);
            ASSERT_EQ(row[text[i]], out[k]);
            ASSERT_NEAR(std::accumulate(row, row + vocabulary, 0.0), 1, 1e-12);
          }
        }
        store.learn(context, text[i], static_cast<std::int64_t>(i));
        plain.learn(context, text[i]);
      }
    }
  }
}

// The sparse parts of a mixture of the orders' distributions add up to it; also after eviction, which leaves implied
// contexts.
TEST(Contexts, SpreadIntoWhatEachNodeAdds) {
  const int vocabulary = 40, longest = 4;
  const ContextSettings settings{.longest = longest, .entries = 1024, .decay = 1e-4};
  const std::vector<std::int32_t> text = text_of(5, 6000, vocabulary);
  const std::vector<double> weights{0.1, 0.05, 0.2, 0.15, 0.1};
  ContextStore store(settings, vocabulary);
  std::vector<double> all;
  std::size_t followers = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto context = before(text, i, longest);
    if (i % 100 == 0) {
      const ContextMatch match = store.find(context);
      store.distributions(match, all);
      const ContextSpread parts = store.spread(match, weights);
      const ContextStore::OwnShares shares = store.own_shares();
      std::vector<double> sum(static_cast<std::size_t>(vocabulary), parts.uniform / vocabulary);
      for (int k = 0; k <= match.depth; ++k) {
        const auto node = static_cast<std::size_t>(match.nodes[static_cast<std::size_t>(k)]);
        for (auto at = static_cast<std::size_t>(shares.first[node]);
             at < static_cast<std::size_t>(shares.first[node + 1]); ++at)
          sum[static_cast<std::size_t>(shares.tokens[at])] +=
              parts.nodes[static_cast<std::size_t>(k)] * static_cast<double>(shares.shares[at]);
      }
      if (parts.follower > 0) {
        ++followers;
        sum[static_cast<std::size_t>(match.follower)] += parts.follower;
      }
      for (std::size_t v = 0; v < sum.size(); ++v) {
        double expected = 0;
        for (std::size_t k = 0; k < weights.size(); ++k) expected += weights[k] * all[k * sum.size() + v];
        ASSERT_NEAR(sum[v], expected, 1e-6) << "token " << v << " at " << i;
      }
    }
    store.learn(context, text[i], static_cast<std::int64_t>(i));
  }
  EXPECT_GT(followers, 0u);
}

TEST(Contexts, NeedFewEntriesForTextThatIsNew) {
  const ContextSettings settings{.longest = 5, .entries = 1 << 20};
  std::vector<std::int32_t> text(3000);
  std::iota(text.begin(), text.end(), 0);  // nothing recurs
  const ContextStore store = learned(ContextStore(settings, 3000), text, 0, text.size());
  EXPECT_LE(store.size(), 2 * 3000);  // orders 0 and 1; longer contexts are implied
}

TEST(Contexts, KeepTheMostUsedEntries) {
  const int vocabulary = 40;
  const ContextSettings settings{.longest = 4, .entries = 1024, .decay = 1e-4};
  const std::vector<std::int32_t> text = text_of(3, 20000, vocabulary);
  ContextStore store(settings, vocabulary);
  std::vector<double> all;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto context = before(text, i, settings.longest);
    if (i % 997 == 0) {
      store.distributions(store.find(context), all);
      for (int k = 0; k < settings.orders(); ++k) {
        const double* row = all.data() + k * vocabulary;
        ASSERT_NEAR(std::accumulate(row, row + vocabulary, 0.0), 1, 1e-12);
        ASSERT_GE(*std::min_element(row, row + vocabulary), 0);
      }
    }
    store.learn(context, text[i], static_cast<std::int64_t>(i));
    ASSERT_LE(store.size(), settings.entries);
  }
  EXPECT_GT(store.evicted(), 0);
  // Every context that is kept has the shorter ones, and every entry the entry of the shorter context.
  for (const ContextEntry& entry : store.entries()) {
    std::vector<std::int32_t> tokens = store.tokens_of(entry.node);
    while (!tokens.empty()) {
      tokens.erase(tokens.begin());
      const ContextMatch match = store.find(tokens);
      ASSERT_EQ(match.depth, std::ssize(tokens));
      const auto followers = store.followers(match);
      const auto same = std::find_if(followers.begin(), followers.end(),
                                     [&](const ContextEntry& one) { return one.token == entry.token; });
      ASSERT_NE(same, followers.end());
      ASSERT_GE(same->usage, entry.usage);
      ASSERT_GE(same->seen, entry.seen);
    }
  }
  // All single tokens were used more often than any eviction reaches.
  EXPECT_EQ(store.followers(store.find({})).size(), static_cast<std::size_t>(vocabulary));
}

TEST(Contexts, ContinueFromTheirStateAsIfNothingHappened) {
  const int vocabulary = 30;
  const ContextSettings settings{.longest = 5, .entries = 2000};
  const std::vector<std::int32_t> text = text_of(5, 6000, vocabulary);
  const ContextStore whole = learned(ContextStore(settings, vocabulary), text, 0, text.size());
  for (const std::size_t split : {1, 100, 2500}) {
    const ContextStore half = learned(ContextStore(settings, vocabulary), text, 0, split);
    const ContextStore again = ContextStore::restore(settings, vocabulary, half.state(), "a file");
    EXPECT_TRUE(again == half);
    EXPECT_TRUE(learned(again, text, split, text.size()) == whole);
  }
}

TEST(Contexts, RefuseDamagedStates) {
  const int vocabulary = 30;
  const ContextSettings settings{.longest = 3, .entries = 2000};
  const std::vector<std::int32_t> text = text_of(6, 500, vocabulary);
  const ContextStore store = learned(ContextStore(settings, vocabulary), text, 0, text.size());
  const ContextStore::State good = store.state();
  const auto refused = [&](auto damage) {
    ContextStore::State state = good;
    damage(state);
    EXPECT_THROW(ContextStore::restore(settings, vocabulary, state, "a file"), Error);
  };
  refused([](auto& s) { s.nodes.pop_back(); });
  refused([](auto& s) { s.nodes[6] = 5; });   // a parent after its child
  refused([](auto& s) { s.nodes[7] = 30; });  // no token
  refused([](auto& s) { s.nodes[8] = 4; });   // more tokens stored than allowed
  refused([](auto& s) { s.entries[1] = -1; });
  refused([](auto& s) { s.entries[2] = 0; });
  refused([](auto& s) { s.entries[5] = s.entries[1], s.entries[4] = s.entries[0]; });  // twice the same
  refused([](auto& s) { s.usage[3] = -1; });
  refused([](auto& s) { s.places[3] = -2; });
  refused([](auto& s) { s.counts_of_counts[0] = -1; });
  refused([](auto& s) { s.unit = 0; });
}

TEST(Contexts, MergeIsWhatBothHaveSeen) {
  const int vocabulary = 20;
  const ContextSettings settings{.longest = 4, .entries = 1 << 20};
  const std::vector<std::int32_t> one = text_of(7, 800, vocabulary), two = text_of(8, 900, vocabulary);
  ContextStore first = learned(ContextStore(settings, vocabulary), one, 0, one.size());
  const ContextStore second = learned(ContextStore(settings, vocabulary), two, 0, two.size());
  const ContextStore both = learned(first, two, 0, two.size());
  first.merge(second, [](std::int64_t place) { return place; });
  // The same contexts and the same occurrences as if both had been read one after another.
  const auto occurrences = [](const ContextStore& store) {
    std::map<std::pair<std::vector<std::int32_t>, std::int32_t>, std::int32_t> out;
    for (const ContextEntry& entry : store.entries()) out[{store.tokens_of(entry.node), entry.token}] = entry.seen;
    return out;
  };
  EXPECT_EQ(occurrences(first), occurrences(both));
  std::vector<double> all;
  for (std::size_t i = 0; i < two.size(); i += 37) {
    first.distributions(first.find(before(two, i, 4)), all);
    for (int k = 0; k < settings.orders(); ++k) {
      const double* row = all.data() + k * vocabulary;
      ASSERT_NEAR(std::accumulate(row, row + vocabulary, 0.0), 1, 1e-12);
    }
  }
  EXPECT_TRUE(ContextStore::restore(settings, vocabulary, first.state(), "a file") == first);
}

TEST(Contexts, PruneRareEntries) {
  const int vocabulary = 20;
  const ContextSettings settings{.longest = 4, .entries = 1 << 20};
  const std::vector<std::int32_t> text = text_of(9, 2000, vocabulary);
  ContextStore store = learned(ContextStore(settings, vocabulary), text, 0, text.size());
  const std::int64_t all = store.size();
  const std::int64_t gone = store.prune(2);
  EXPECT_GT(gone, 0);
  EXPECT_EQ(store.size(), all - gone);
  for (const ContextEntry& entry : store.entries()) ASSERT_GE(entry.seen, 2);
  EXPECT_TRUE(ContextStore::restore(settings, vocabulary, store.state(), "a file") == store);
}

TEST(ContextMixture, SumsToOneAndLearnsWhichSourceToTrust) {
  const int states = 3, orders = 4, vocabulary = 50;
  ContextMixture mixture(states, orders, vocabulary, 0.01);
  const std::size_t sources = static_cast<std::size_t>(mixture.sources());
  ASSERT_EQ(sources, 9u);
  std::vector<double> weights(sources), probabilities(sources);
  const RandomStream stream = random_stream(1, "mixture");
  double last = 0;
  for (std::uint64_t t = 0; t < 400; ++t) {
    const auto u = [&](std::uint64_t n) { return stream.uniform(t * 16 + n); };
    const MixtureContext context{static_cast<int>(u(0) * 5) - 1, static_cast<std::int64_t>(u(1) * 10), u(2) < 0.5,
                                 static_cast<std::int32_t>(u(5) * 51) - 1};
    for (std::size_t i = 0; i < sources; ++i) probabilities[i] = 0.01 + 0.1 * u(6 + i % 8);
    probabilities[6] = 0.5;  // one source is always right
    mixture.weights(context, weights);
    EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-12);
    EXPECT_GE(*std::min_element(weights.begin(), weights.end()), 0);
    const double expected = std::inner_product(weights.begin(), weights.end(), probabilities.begin(), 0.0);
    last = mixture.learn(context, probabilities);
    EXPECT_EQ(last, expected);
    if (t % 100 == 0) {
      ContextMixture again(states, orders, vocabulary, 0.01);
      again.restore(mixture.state(), again.sources(), "a file");
      EXPECT_EQ(again.state(), mixture.state());
    }
  }
  EXPECT_GT(last, 0.45);
  std::vector<double> damaged = mixture.state();
  damaged[2] = -1;
  ContextMixture other(states, orders, vocabulary, 0.01), larger(states, orders + 1, vocabulary, 0.01);
  EXPECT_THROW(other.restore(damaged, other.sources(), "a file"), Error);
  EXPECT_THROW(larger.restore(mixture.state(), larger.sources(), "a file"), Error);
}

// In ordinary text the model is right and the follower is not. Then an earlier passage returns, of which the model
// knows nothing: within a few tokens its follower must lead, whatever was learned before, and after the passage give
// way again.
TEST(ContextMixture, FollowsARepeatedPassageAndStopsAfterIt) {
  const int orders = 6, vocabulary = 1000;
  ContextMixture mixture(1, orders, vocabulary, 0.01);
  const std::size_t sources = static_cast<std::size_t>(mixture.sources());
  std::vector<double> weights(sources);
  const auto losses_of = [&](double model, double contexts, double follower) {
    std::vector<double> out(sources, contexts);
    out.front() = model;
    out.back() = follower;
    return out;
  };
  const auto context = [](std::int32_t t) { return MixtureContext{5, 1, true, 1 + t % 3}; };
  const auto weight_of_follower = [&] {
    mixture.weights(context(0), weights);
    EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-12);
    return weights.back();
  };
  for (std::int32_t t = 0; t < 3000; ++t) {
    const bool right = t % 4 == 0;
    mixture.learn(context(t), losses_of(0.6, right ? 0.1 : 0.01, right ? 1 : 0));
  }
  EXPECT_LT(weight_of_follower(), 0.1);
  double first = 0, last = 0;
  for (std::int32_t t = 0; t < 8; ++t) {
    last = -std::log(mixture.learn(context(t), losses_of(0.002, 0.05, 1)));
    if (t == 0) first = last;
  }
  EXPECT_GT(first, 1.5);
  EXPECT_LT(last, 0.6);
  const double inside = weight_of_follower();
  EXPECT_GT(inside, 0.5);
  for (std::int32_t t = 0; t < 5; ++t) mixture.learn(context(t), losses_of(0.6, 0.01, 0));
  EXPECT_LT(weight_of_follower(), inside / 2);
  // The model alone has 0.51 nats per token.
  EXPECT_LT(-std::log(mixture.learn(context(0), losses_of(0.6, 0.01, 0))), 1);
  // A state in the middle of a passage continues it.
  for (std::int32_t t = 0; t < 5; ++t) mixture.learn(context(t), losses_of(0.002, 0.05, 1));
  ContextMixture again(1, orders, vocabulary, 0.01);
  again.restore(mixture.state(), again.sources(), "a file");
  std::vector<double> same(sources);
  again.weights(context(0), same);
  mixture.weights(context(0), weights);
  EXPECT_EQ(same, weights);
}

// Memories written before the follower was a source are read; compressed files have none.
TEST(ContextMixture, ReadsStatesWithoutFollowers) {
  const int states = 2, orders = 4, vocabulary = 30;
  ContextMixture old(states, orders, vocabulary, 0.01, false);
  const auto sources = static_cast<std::size_t>(old.sources());
  ASSERT_EQ(sources, 7u);
  const RandomStream stream = random_stream(1, "old mixtures");
  const MixtureContext several{3, 9, false, 5};
  for (std::uint64_t t = 0; t < 200; ++t) {
    std::vector<double> probabilities(sources);
    for (std::size_t i = 0; i < sources; ++i) probabilities[i] = 0.01 + 0.2 * stream.uniform(8 * t + i);
    old.learn(
        {static_cast<int>(t % 4), 1 + static_cast<std::int64_t>(t % 9), t % 3 == 0, static_cast<std::int32_t>(t % 30)},
        probabilities);
  }
  ContextMixture same(states, orders, vocabulary, 0.01, false), now(states, orders, vocabulary, 0.01);
  same.restore(old.state(), same.sources(), "a file");
  EXPECT_EQ(same.state(), old.state());
  now.restore(old.state(), now.sources() - 1, "a file");
  std::vector<double> before(sources), after(sources + 1);
  old.weights(several, before);
  now.weights(several, after);
  EXPECT_EQ(after.back(), 0);
  after.pop_back();
  EXPECT_EQ(after, before);
  EXPECT_THROW(now.restore(old.state(), now.sources(), "a file"), Error);
}

}  // namespace
}  // namespace some
