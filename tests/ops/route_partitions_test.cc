// Top-k routing over some partitions of the keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/harness.h"
#include "ops/route.h"

namespace some::test {
namespace {

struct Search {
  std::int64_t tokens, d;
  int experts, k, count, probe;
  bool biased = false, silenced = false;  // silenced: some experts are never chosen
};

Arrays search_inputs(const Search& s) {
  Array temperature = zeros({1}), bias = normals({s.experts}, "bias", 0.5);
  temperature[0] = 0.5;
  for (int e = 0; s.silenced && e < s.experts; e += 3) bias[e] = never_chosen;
  return {{"query", normals({s.tokens, s.d}, "query", 1.0 / std::sqrt(static_cast<double>(s.d)))},
          {"keys", normals({s.experts, s.d}, "keys")},
          {"temperature", temperature},
          {"bias", bias}};
}

// The k best of `numbers` in this order, the first among equals first.
std::vector<int> best_of(const std::vector<double>& numbers, std::size_t k) {
  std::vector<int> order(numbers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return numbers[static_cast<std::size_t>(a)] > numbers[static_cast<std::size_t>(b)];
  });
  order.resize(std::min(k, order.size()));
  return order;
}

Arrays search_plainly(const Search& s, const Arrays& in) {
  Arrays out{
      {"indices", zeros({s.tokens, s.k})}, {"scores", zeros({s.tokens, s.k})}, {"gates", zeros({s.tokens, s.k})}};
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    std::vector<double> score(static_cast<std::size_t>(s.experts)), rank(score), means;
    for (int e = 0; e < s.experts; ++e) {
      const auto at = static_cast<std::size_t>(e);
      for (std::int64_t j = 0; j < s.d; ++j) score[at] += in.at("query")[t * s.d + j] * in.at("keys")[e * s.d + j];
      rank[at] = score[at] + (s.biased ? in.at("bias")[e] : 0);
    }
    for (int p = 0; p < s.count; ++p) {
      const int from = p * s.experts / s.count, to = (p + 1) * s.experts / s.count;
      double sum = 0;
      for (int e = from; e < to; ++e) {
        const bool counts = s.biased && in.at("bias")[e] > never_chosen;
        sum += score[static_cast<std::size_t>(e)] + (counts ? in.at("bias")[e] : 0);
      }
      means.push_back(sum / (to - from));
    }
    std::vector<double> found(rank.size(), -INFINITY);
    for (const int p : best_of(means, static_cast<std::size_t>(s.probe))) {
      for (int e = p * s.experts / s.count; e < (p + 1) * s.experts / s.count; ++e)
        found[static_cast<std::size_t>(e)] = rank[static_cast<std::size_t>(e)];
    }
    const std::vector<int> chosen = best_of(found, static_cast<std::size_t>(s.k));
    double sum = 0;
    for (int i = 0; i < s.k; ++i) {
      const int e = chosen[static_cast<std::size_t>(i)];
      out["indices"][t * s.k + i] = e;
      out["scores"][t * s.k + i] = score[static_cast<std::size_t>(e)];
      sum += std::exp(score[static_cast<std::size_t>(e)] / 0.5);
    }
    for (int i = 0; i < s.k; ++i) out["gates"][t * s.k + i] = std::exp(out["scores"][t * s.k + i] / 0.5) / sum;
  }
  return out;
}

OpCase search_case(const Search& s) {
  OpCase one;
  one.name = fmt::format("partitions_{}x{}_e{}_k{}_{}of{}{}{}", s.tokens, s.d, s.experts, s.k, s.probe, s.count,
                         s.biased ? "_biased" : "", s.silenced ? "_silenced" : "");
  one.inputs = [=] { return search_inputs(s); };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Tensor query = lab.master(in.at("query")), keys = lab.master(in.at("keys")), bias = lab.master(in.at("bias")),
                 temperature = lab.master(in.at("temperature"));
    const Tensor* const favour = s.biased ? &bias : nullptr;
    const auto new_routing = [&] {
      return Routing{lab.new_whole({s.tokens, s.k}), lab.new_master({s.tokens, s.k}), lab.new_master({s.tokens, s.k})};
    };
    Routing routing = new_routing();
    route_partitions_forward(lab.context(), query, keys, favour, temperature, {s.count, s.probe}, routing);
    // A search of every partition finds what a search of all keys finds.
    Routing everywhere = new_routing(), all = new_routing();
    route_partitions_forward(lab.context(), query, keys, favour, temperature, {s.count, s.count}, everywhere);
    route_forward(lab.context(), query, keys, favour, temperature, false, all);
    EXPECT_EQ(read(everywhere.indices).values, read(all.indices).values);
    EXPECT_LT(difference(read(all.scores), read(everywhere.scores)), 1e-5);
    EXPECT_LT(difference(read(all.gates), read(everywhere.gates)), 1e-5);
    return Arrays{{"indices", read(routing.indices)}, {"scores", read(routing.scores)}, {"gates", read(routing.gates)}};
  };
  one.reference = [=](const Arrays& in) { return search_plainly(s, in); };
  one.exact = {"indices"};
  return one;
}

const bool added = add_cases({search_case({1, 8, 12, 2, 4, 1}), search_case({70, 12, 37, 3, 5, 2}),
                              search_case({67, 32, 301, 4, 16, 3, true}), search_case({33, 16, 100, 17, 7, 2, true}),
                              search_case({20, 24, 60, 2, 6, 2, true, true}), search_case({300, 64, 2048, 8, 64, 4}),
                              search_case({9, 13, 23, 1, 23, 2, true})});

// The choice of a row does not depend on the other rows.
TEST(Partitions, ARowHasTheSameBitsInAnyBatch) {
  const Search s{50, 24, 96, 4, 8, 2, true};
  const Arrays in = search_inputs(s);
  Lab lab("cpu", "fp32");
  const Tensor keys = lab.master(in.at("keys")), bias = lab.master(in.at("bias")),
               temperature = lab.master(in.at("temperature"));
  const auto routed = [&](std::int64_t begin, std::int64_t rows) {
    Array part = zeros({rows, s.d});
    std::copy_n(in.at("query").values.begin() + begin * s.d, rows * s.d, part.values.begin());
    Routing routing{lab.new_whole({rows, s.k}), lab.new_master({rows, s.k}), lab.new_master({rows, s.k})};
    route_partitions_forward(lab.context(), lab.master(part), keys, &bias, temperature, {s.count, s.probe}, routing);
    return std::pair(read(routing.indices).values, read(routing.gates).values);
  };
  const auto whole = routed(0, s.tokens);
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{17}, s.tokens - 1}) {
    const auto one = routed(row, 1);
    for (int i = 0; i < s.k; ++i) {
      const auto at = static_cast<std::size_t>(row * s.k + i), place = static_cast<std::size_t>(i);
      EXPECT_EQ(one.first[place], whole.first[at]);
      EXPECT_EQ(one.second[place], whole.second[at]);
    }
  }
}

TEST(Partitions, CoverEveryExpertOnce) {
  for (const auto& [experts, count] : {std::pair{7, 3}, {1000000, 1024}, {5, 5}, {65536, 255}}) {
    EXPECT_EQ(partition_begin(0, experts, count), 0);
    EXPECT_EQ(partition_begin(count, experts, count), experts);
    for (int p = 0; p < count; ++p) {
      const std::int64_t size = partition_begin(p + 1, experts, count) - partition_begin(p, experts, count);
      EXPECT_GE(size, experts / count);
      EXPECT_LE(size, experts / count + 1);
    }
  }
}

}  // namespace
}  // namespace some::test
