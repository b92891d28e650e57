#include "ops/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "ops/elementwise.h"
#include "ops/experts.h"
#include "ops/harness.h"
#include "ops/hash_choice.h"
#include "tensor/device.h"

namespace some::test {
namespace {

void plain_normalize(double* row, std::int64_t d, double* length) {
  double squares = 0;
  for (std::int64_t i = 0; i < d; ++i) squares += row[i] * row[i];
  *length = std::max(std::sqrt(squares), 1e-12);
  for (std::int64_t i = 0; i < d; ++i) row[i] /= *length;
}

// grounded: the layer below has a query; with ground > 0 but without one (layer 0) nothing is added.
OpCase query_case(std::int64_t tokens, std::int64_t d, double ground, bool grounded) {
  OpCase one;
  one.name =
      fmt::format("query_{}x{}_ground{}{}", tokens, d, static_cast<int>(ground * 100), grounded ? "_previous" : "");
  one.inputs = [=] {
    Array previous = normals({tokens, d}, "previous", 1.0 / std::sqrt(static_cast<double>(d)));
    return Arrays{{"raw", normals({tokens, d}, "raw", 3.0)},
                  {"previous", previous},
                  {"dquery", normals({tokens, d}, "dquery")},
                  {"dprevious0", normals({tokens, d}, "dprevious0")}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Tensor raw = lab.master(in.at("raw")), previous = lab.master(in.at("previous"));
    Tensor query = lab.new_master({tokens, d}), norms = lab.new_master({tokens, 2});
    query_forward(lab.context(), raw, grounded ? &previous : nullptr, ground, query, norms);
    const Tensor dquery = lab.master(in.at("dquery"));
    Tensor draw = lab.new_master({tokens, d}), dprevious = lab.master(in.at("dprevious0"));
    query_backward(lab.context(), dquery, raw, query, norms, ground, draw, grounded ? &dprevious : nullptr);
    Tensor over = lab.master(in.at("dquery"));
    query_backward(lab.context(), over, raw, query, norms, ground, over, nullptr);
    Tensor rounded = lab.new_compute({tokens, d});
    query_backward(lab.context(), dquery, raw, query, norms, ground, rounded, nullptr);
    Arrays results{{"query", read(query)},
                   {"norms", read(norms)},
                   {"draw", read(draw)},
                   {"draw_in_place", read(over)},
                   {"draw_compute", read(rounded)}};
    if (grounded) results["dprevious"] = read(dprevious);
    return results;
  };
  one.reference = [=](const Arrays& in) {
    Array query = in.at("raw"), norms = zeros({tokens, 2});
    for (std::int64_t t = 0; t < tokens; ++t) {
      plain_normalize(&query[t * d], d, &norms[2 * t]);
      norms[2 * t + 1] = 1;
      if (!grounded || ground == 0) continue;
      for (std::int64_t i = 0; i < d; ++i) query[t * d + i] += ground * in.at("previous")[t * d + i];
      plain_normalize(&query[t * d], d, &norms[2 * t + 1]);
    }
    return Arrays{{"query", query}, {"norms", norms}};
  };
  one.loss = {{"query", "dquery"}};
  one.gradients = {{"raw", "draw"}, {"raw", "draw_in_place"}, {"raw", "draw_compute"}};
  if (grounded) one.gradients.push_back({"previous", "dprevious", "dprevious0"});
  return one;
}

struct RouteShape {
  std::int64_t tokens, d;
  int experts, k;
  bool given = false;   // the experts are already chosen
  bool biased = false;  // otherwise, a bias is added to the scores for the choice
};

std::string route_name(const std::string& op, const RouteShape& s) {
  return fmt::format("{}_{}x{}_e{}_k{}{}", op, s.tokens, s.d, s.experts, s.k,
                     s.given    ? "_given"
                     : s.biased ? "_biased"
                                : "");
}

Arrays route_inputs(const RouteShape& s) {
  Array choice = zeros({s.tokens, s.k});
  for (std::int64_t i = 0; i < s.tokens * s.k; ++i)
    choice[i] = static_cast<double>((i * 7 / s.k + i % s.k) % s.experts);
  Array temperature = zeros({1}), log_temperature = zeros({1}), dlog_temperature = zeros({1});
  temperature[0] = 0.5;
  log_temperature[0] = std::log(0.5);
  // Large, because the sum of all terms, which may cancel, should not be the scale of its error.
  dlog_temperature[0] = 16;
  return {{"query", normals({s.tokens, s.d}, "query", 1.0 / std::sqrt(static_cast<double>(s.d)))},
          {"keys", normals({s.experts, s.d}, "keys")},
          {"temperature", temperature},
          {"log_temperature", log_temperature},
          {"bias", normals({s.experts}, "bias", 0.5)},
          {"choice", choice},
          {"dgates", normals({s.tokens, s.k}, "dgates")},
          {"dlog_temperature0", dlog_temperature}};
}

Array learnt_temperature(const Arrays& in) {
  Array out = in.at("log_temperature");
  out[0] = std::exp(out[0]);
  return out;
}

// router_route_forward: raw is the output of the dense layer; the results that follow from it are bit-identical to
// those of the separate operations.
OpCase router_route_case(RouteShape s, std::int64_t hidden, bool with_bias) {
  OpCase one;
  one.name = route_name(fmt::format("router_route_{}{}", hidden, with_bias ? "_bias" : ""), s);
  one.inputs = [=] {
    Arrays in = route_inputs(s);
    in["y"] = normals({s.tokens, hidden}, "y");
    in["weight"] = normals({s.d, hidden}, "weight", 1.0 / std::sqrt(static_cast<double>(hidden)));
    in["router_bias"] = normals({s.d}, "router_bias", 0.3);
    return in;
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Tensor y = lab.compute(in.at("y")), keys = lab.master(in.at("keys")), bias = lab.master(in.at("bias")),
                 log_temperature = lab.master(in.at("log_temperature"));
    const Param weight = lab.param(in.at("weight")), shift = with_bias ? lab.param(in.at("router_bias")) : Param{};
    const Tensor* const favour = s.biased ? &bias : nullptr;
    const auto new_routing = [&] {
      return Routing{s.given ? lab.whole(in.at("choice")) : lab.new_whole({s.tokens, s.k}),
                     lab.new_master({s.tokens, s.k}), lab.new_master({s.tokens, s.k})};
    };
    Routing apart = new_routing(), together = new_routing();
    const auto master = [&](std::int64_t columns) { return lab.new_master({s.tokens, columns}); };
    Tensor raw = master(s.d), query = master(s.d), norms = master(2), query_together = master(s.d),
           norms_together = master(2), temperature = lab.new_master({1}), temperature_together = lab.new_master({1});
    router_route_forward(lab.context(), {y, weight, shift},
                         {raw, nullptr, 0.0, keys, favour, &log_temperature, s.given, KeyPartitions(), query_together,
                          norms_together, temperature_together, together});
    query_route_forward(lab.context(), {raw, nullptr, 0.0, keys, favour, &log_temperature, s.given, KeyPartitions(),
                                        query, norms, temperature, apart});
    EXPECT_EQ(read(temperature).values, read(temperature_together).values);
    EXPECT_EQ(read(query).values, read(query_together).values);
    EXPECT_EQ(read(norms).values, read(norms_together).values);
    EXPECT_EQ(read(apart.indices).values, read(together.indices).values);
    EXPECT_EQ(read(apart.scores).values, read(together.scores).values);
    EXPECT_EQ(read(apart.gates).values, read(together.gates).values);
    const DispatchPlan plan = make_dispatch(lab.context(), apart.indices, s.experts),
                       with_counts = make_dispatch(lab.context(), together.indices, s.experts, together.counts);
    EXPECT_EQ(read(plan.order).values, read(with_counts.order).values);
    return Arrays{{"raw", read(raw)}};
  };
  one.reference = [=](const Arrays& in) {
    Array raw = zeros({s.tokens, s.d});
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (std::int64_t i = 0; i < s.d; ++i) {
        double& sum = raw[t * s.d + i];
        sum = with_bias ? in.at("router_bias")[i] : 0.0;
        for (std::int64_t h = 0; h < hidden; ++h) sum += in.at("y")[t * hidden + h] * in.at("weight")[i * hidden + h];
      }
    }
    return Arrays{{"raw", raw}};
  };
  return one;
}

double plain_score(const Arrays& in, std::int64_t t, std::int64_t e, std::int64_t d) {
  double score = 0;
  for (std::int64_t i = 0; i < d; ++i) score += in.at("query")[t * d + i] * in.at("keys")[e * d + i];
  return score;
}

// query_route_forward is bit-identical to its two operations run one after the other.
OpCase query_route_case(RouteShape s, bool grounded) {
  OpCase one;
  one.name = route_name(grounded ? "query_route_grounded" : "query_route", s);
  one.inputs = [=] {
    Arrays in = route_inputs(s);
    in["previous"] = normals({s.tokens, s.d}, "previous", 1.0 / std::sqrt(static_cast<double>(s.d)));
    return in;
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    constexpr double ground = 0.25;
    const Tensor raw = lab.master(in.at("query")), keys = lab.master(in.at("keys")),
                 previous = lab.master(in.at("previous")), bias = lab.master(in.at("bias")),
                 log_temperature = lab.master(in.at("log_temperature"));
    Tensor temperature = lab.new_master({1}), temperature_together = lab.new_master({1});
    exponential(lab.context(), log_temperature, temperature);
    const Tensor *below = grounded ? &previous : nullptr, *favour = s.biased ? &bias : nullptr;
    const auto new_routing = [&] {
      return Routing{s.given ? lab.whole(in.at("choice")) : lab.new_whole({s.tokens, s.k}),
                     lab.new_master({s.tokens, s.k}), lab.new_master({s.tokens, s.k})};
    };
    Routing apart = new_routing(), together = new_routing();
    Tensor query = lab.new_master({s.tokens, s.d}), norms = lab.new_master({s.tokens, 2}),
           query_together = lab.new_master({s.tokens, s.d}), norms_together = lab.new_master({s.tokens, 2});
    query_forward(lab.context(), raw, below, ground, query, norms);
    route_forward(lab.context(), query, keys, favour, temperature, s.given, apart);
    query_route_forward(lab.context(), {raw, below, ground, keys, favour, &log_temperature, s.given, KeyPartitions(),
                                        query_together, norms_together, temperature_together, together});
    EXPECT_EQ(read(temperature).values, read(temperature_together).values);
    const DispatchPlan plan = make_dispatch(lab.context(), apart.indices, s.experts),
                       with_counts = make_dispatch(lab.context(), together.indices, s.experts, together.counts);
    EXPECT_EQ(read(plan.order).values, read(with_counts.order).values);
    EXPECT_EQ(read(plan.place).values, read(with_counts.place).values);
    EXPECT_EQ(read(plan.offsets).values, read(with_counts.offsets).values);
    EXPECT_EQ(read(query).values, read(query_together).values);
    EXPECT_EQ(read(norms).values, read(norms_together).values);
    EXPECT_EQ(read(apart.indices).values, read(together.indices).values);
    EXPECT_EQ(read(apart.scores).values, read(together.scores).values);
    EXPECT_EQ(read(apart.gates).values, read(together.gates).values);
    // The backward pass.
    const Tensor dgates = lab.master(in.at("dgates"));
    const auto start = [&](const char* name) { return lab.master(in.at(name)); };
    Tensor dquery = lab.new_master({s.tokens, s.d}), draw = lab.new_compute({s.tokens, s.d}),
           draw_together = lab.new_compute({s.tokens, s.d}), dprevious = start("previous"),
           dprevious_together = start("previous"), dlog = start("dlog_temperature0"),
           dlog_together = start("dlog_temperature0");
    const double grounding = grounded ? ground : 0.0;
    route_backward(lab.context(), dgates, apart, keys, temperature, dquery, &dlog);
    query_backward(lab.context(), dquery, raw, query, norms, grounding, draw, grounded ? &dprevious : nullptr);
    route_query_backward(lab.context(), {dgates, apart, keys, temperature, raw, query, norms, grounding, draw_together,
                                         grounded ? &dprevious_together : nullptr, &dlog_together});
    EXPECT_EQ(read(draw).values, read(draw_together).values);
    EXPECT_EQ(read(dprevious).values, read(dprevious_together).values);
    EXPECT_EQ(read(dlog).values, read(dlog_together).values);
    return Arrays{{"query", read(query_together)}, {"norms", read(norms_together)}};
  };
  one.reference = [=](const Arrays& in) {
    Arrays out{{"query", in.at("query")}, {"norms", zeros({s.tokens, 2})}};
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      double* const row = &out["query"].values[static_cast<std::size_t>(t * s.d)];
      const auto norm = [&](int which) {
        double square = 0;
        for (std::int64_t i = 0; i < s.d; ++i) square += row[i] * row[i];
        out["norms"][2 * t + which] = std::sqrt(square);
        for (std::int64_t i = 0; i < s.d; ++i) row[i] /= std::sqrt(square);
      };
      norm(0);
      out["norms"][2 * t + 1] = 1;
      if (!grounded) continue;
      for (std::int64_t i = 0; i < s.d; ++i) row[i] += 0.25 * in.at("previous")[t * s.d + i];
      norm(1);
    }
    return out;
  };
  return one;
}

// smooth: no two scores are so close that the small steps of finite differences change the choice.
OpCase route_case(RouteShape s, bool smooth = true) {
  OpCase one;
  one.name = route_name("route", s);
  one.inputs = [=] { return route_inputs(s); };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Tensor query = lab.master(in.at("query")), keys = lab.master(in.at("keys")),
                 temperature = lab.master(learnt_temperature(in)), bias = lab.master(in.at("bias"));
    Routing routing{s.given ? lab.whole(in.at("choice")) : lab.new_whole({s.tokens, s.k}),
                    lab.new_master({s.tokens, s.k}), lab.new_master({s.tokens, s.k})};
    route_forward(lab.context(), query, keys, s.biased ? &bias : nullptr, temperature, s.given, routing);
    Tensor dquery = lab.new_master({s.tokens, s.d}), dlog_temperature = lab.master(in.at("dlog_temperature0"));
    const Tensor dgates = lab.master(in.at("dgates"));
    route_backward(lab.context(), dgates, routing, keys, temperature, dquery, &dlog_temperature);
    Tensor dquery_only = lab.new_master({s.tokens, s.d});
    route_backward(lab.context(), dgates, routing, keys, temperature, dquery_only, nullptr);
    return Arrays{{"indices", read(routing.indices)}, {"scores", read(routing.scores)},
                  {"gates", read(routing.gates)},     {"dquery", read(dquery)},
                  {"dquery_only", read(dquery_only)}, {"dlog_temperature", read(dlog_temperature)}};
  };
  one.reference = [=](const Arrays& in) {
    Arrays out{{"indices", in.at("choice")}, {"scores", zeros({s.tokens, s.k})}, {"gates", zeros({s.tokens, s.k})}};
    const double temperature = learnt_temperature(in)[0];
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      std::vector<double> score;
      for (int e = 0; e < s.experts; ++e) score.push_back(plain_score(in, t, e, s.d));
      if (!s.given) {
        std::vector<int> order(static_cast<std::size_t>(s.experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
          const auto favour = [&](int e) {
            return score[static_cast<std::size_t>(e)] + (s.biased ? in.at("bias")[e] : 0.0);
          };
          return favour(a) > favour(b);
        });
        for (int i = 0; i < s.k; ++i) out["indices"][t * s.k + i] = order[static_cast<std::size_t>(i)];
      }
      double sum = 0;
      for (int i = 0; i < s.k; ++i) {
        out["scores"][t * s.k + i] = score[static_cast<std::size_t>(out["indices"][t * s.k + i])];
        sum += std::exp(out["scores"][t * s.k + i] / temperature);
      }
      for (int i = 0; i < s.k; ++i)
        out["gates"][t * s.k + i] = std::exp(out["scores"][t * s.k + i] / temperature) / sum;
    }
    return out;
  };
  one.exact = {"indices"};
  if (!smooth) return one;
  one.loss = {{"gates", "dgates"}};
  one.gradients = {
      {"query", "dquery"}, {"query", "dquery_only"}, {"log_temperature", "dlog_temperature", "dlog_temperature0"}};
  return one;
}

Arrays with_targets(Arrays in, std::int64_t tokens) {
  Array targets = zeros({tokens}), loss = zeros({1});
  for (std::int64_t t = 0; t < tokens; ++t) targets[t] = t % 3 == 1 ? -1 : static_cast<double>(t);
  loss[0] = 0.75;
  in["targets"] = targets;
  in["loss0"] = loss;
  return in;
}

bool plain_takes_part(const Arrays& in, bool masked, std::int64_t t) { return !masked || in.at("targets")[t] >= 0; }

OpCase balance_case(RouteShape s, bool masked) {
  constexpr double coefficient = 0.3;
  OpCase one;
  one.name = route_name(masked ? "balance_masked" : "balance", s);
  one.inputs = [=] {
    Arrays in = with_targets(route_inputs(s), s.tokens);
    in["dquery0"] = normals({s.tokens, s.d}, "dquery0", 0.01);
    return in;
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    Tensor dquery = lab.master(in.at("dquery0")), loss = lab.master(in.at("loss0"));
    const Tensor targets = lab.whole(in.at("targets"));
    balance_loss(lab.context(), lab.master(in.at("query")), lab.master(in.at("keys")), lab.master(in.at("temperature")),
                 lab.whole(in.at("choice")), masked ? &targets : nullptr, coefficient, dquery, loss);
    return Arrays{{"dquery", read(dquery)}, {"loss", read(loss)}};
  };
  one.reference = [=](const Arrays& in) {
    std::vector<double> share(static_cast<std::size_t>(s.experts)), mean(static_cast<std::size_t>(s.experts));
    double positions = 0;
    for (std::int64_t t = 0; t < s.tokens; ++t) positions += plain_takes_part(in, masked, t) ? 1 : 0;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      if (!plain_takes_part(in, masked, t)) continue;
      for (int i = 0; i < s.k; ++i)
        share[static_cast<std::size_t>(in.at("choice")[t * s.k + i])] += 1.0 / (positions * s.k);
      std::vector<double> p;
      double sum = 0;
      for (int e = 0; e < s.experts; ++e) {
        p.push_back(std::exp(plain_score(in, t, e, s.d) / in.at("temperature")[0]));
        sum += p.back();
      }
      for (std::size_t e = 0; e < p.size(); ++e) mean[e] += p[e] / sum / positions;
    }
    Array loss = in.at("loss0");
    for (std::size_t e = 0; e < mean.size(); ++e) loss[0] += coefficient * s.experts * share[e] * mean[e];
    return Arrays{{"loss", loss}};
  };
  one.loss = {{"loss", ""}};
  one.gradients = {{"query", "dquery", "dquery0"}};
  return one;
}

OpCase entropy_case(std::int64_t tokens, int k, double low, double high, bool masked, const std::string& label) {
  constexpr double coefficient = 2.0;
  OpCase one;
  one.name = fmt::format("entropy_{}_{}x{}{}", label, tokens, k, masked ? "_masked" : "");
  one.inputs = [=] {
    Array gates = normals({tokens, k}, "gates");
    for (std::int64_t t = 0; t < tokens; ++t) {
      double sum = 0;
      for (int i = 0; i < k; ++i) sum += std::exp(gates[t * k + i]);
      for (int i = 0; i < k; ++i)
        gates[t * k + i] = to_float(to_bfloat16(static_cast<float>(std::exp(gates[t * k + i]) / sum)));
    }
    return with_targets({{"gates", gates}, {"dgates0", normals({tokens, k}, "dgates0")}}, tokens);
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    Tensor dgates = lab.master(in.at("dgates0")), loss = lab.master(in.at("loss0"));
    const Tensor targets = lab.whole(in.at("targets"));
    entropy_band_loss(lab.context(), lab.master(in.at("gates")), masked ? &targets : nullptr, low, high, coefficient,
                      dgates, loss);
    return Arrays{{"dgates", read(dgates)}, {"loss", read(loss)}};
  };
  one.reference = [=](const Arrays& in) {
    double entropy = 0, positions = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (!plain_takes_part(in, masked, t)) continue;
      positions += 1;
      for (int i = 0; i < k; ++i) entropy -= in.at("gates")[t * k + i] * std::log(in.at("gates")[t * k + i]);
    }
    entropy /= positions;
    Array loss = in.at("loss0");
    loss[0] += coefficient * std::pow(std::max({0.0, low - entropy, entropy - high}), 2);
    return Arrays{{"loss", loss}};
  };
  one.loss = {{"loss", ""}};
  one.gradients = {{"gates", "dgates", "dgates0"}};
  return one;
}

OpCase random_choice_case(std::int64_t tokens, int experts, int k) {
  OpCase one;
  one.name = fmt::format("random_choice_{}_e{}_k{}", tokens, experts, k);
  one.inputs = [=] { return Arrays{{"tokens", whole_numbers({tokens}, "tokens", 50)}}; };
  one.run = [=](Lab& lab, const Arrays& in) {
    Tensor indices = lab.new_whole({tokens, k});
    hash_routing(lab.context(), lab.whole(in.at("tokens")), experts, 5, 2, indices);
    return Arrays{{"indices", read(indices)}};
  };
  one.reference = [=](const Arrays& in) {
    Array indices = zeros({tokens, k});
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(k));
    for (std::int64_t t = 0; t < tokens; ++t) {
      hash_route_token(5, 2, static_cast<std::int32_t>(in.at("tokens")[t]), experts, k, chosen.data());
      std::copy(chosen.begin(), chosen.end(), indices.values.begin() + t * k);
    }
    return Arrays{{"indices", indices}};
  };
  one.exact = {"indices"};
  return one;
}

const bool added = add_cases({
    query_case(1, 12, 0, false),
    query_case(70, 11, 0.5, true),
    query_case(5, 16, 0.5, false),
    query_case(130, 64, 0.25, true),
    route_case({1, 12, 1, 1}),
    route_case({1, 12, 7, 7}),
    route_case({33, 11, 6, 1}),
    route_case({300, 24, 64, 4}),
    route_case({5, 16, 20, 20}),
    route_case({40, 16, 100, 17}),
    route_case({65, 12, 9, 3, true}),
    route_case({1, 12, 7, 3, false, true}),
    route_case({70, 24, 16, 4, false, true}),
    route_case({40, 16, 100, 17, false, true}),
    route_case({9, 16, 40, 40, false, true}),
    route_case({600, 64, 16, 4, false, true}, false),
    route_case({530, 256, 130, 4, false, true}, false),
    // Enough tokens for the tensor core kernel (ops/cuda/route_scores.h); also numbers of experts that do not fill a
    // tile.
    route_case({512, 64, 64, 4}, false),
    route_case({600, 128, 100, 7}, false),
    route_case({577, 384, 33, 32}, false),
    route_case({530, 512, 256, 4}, false),
    // Narrow queries: padded to the kernel's 64 columns or, with 5 numbers, not supported by it.
    route_case({600, 32, 64, 4}, false),
    route_case({513, 16, 70, 3}, false),
    route_case({700, 100, 40, 5}, false),
    route_case({600, 5, 64, 4}, false),
    query_case(90, 5, 0.25, true),
    query_case(40, 32, 0.5, true),
    query_route_case({9, 12, 7, 3}, true),
    query_route_case({65, 12, 9, 3, true}, false),
    query_route_case({600, 64, 64, 4}, false),
    query_route_case({601, 64, 64, 4, false, true}, true),
    query_route_case({700, 100, 40, 5}, true),
    query_route_case({600, 128, 200, 4}, false),
    query_route_case({530, 512, 256, 4}, true),
    router_route_case({9, 12, 7, 3}, 20, true),
    router_route_case({65, 12, 9, 3, true}, 64, false),
    router_route_case({600, 64, 64, 4}, 256, true),
    router_route_case({601, 48, 100, 5, false, true}, 128, false),
    router_route_case({530, 64, 256, 4}, 64, true),
    router_route_case({600, 128, 64, 4}, 256, true),
    balance_case({1, 12, 1, 1}, false),
    balance_case({200, 12, 10, 3}, false),
    balance_case({70, 11, 6, 2}, true),
    entropy_case(1, 4, 2.0, 3.0, false, "below"),
    entropy_case(150, 4, 0.1, 0.2, true, "above"),
    entropy_case(20, 4, 0.0, 5.0, false, "inside"),
    random_choice_case(30, 9, 4),
    random_choice_case(300, 16, 16),
    random_choice_case(5, 1, 1),
});

Routing route_plainly(const std::vector<float>& scores, int k) {
  // With one dimension, the key of an expert is its score.
  auto context = make_context("cpu", "fp32");
  const auto experts = static_cast<std::int64_t>(scores.size());
  Tensor query = Tensor::empty({1, 1}, DType::f32), keys = Tensor::empty({experts, 1}, DType::f32),
         temperature = Tensor::empty({1}, DType::f32);
  query.data<float>()[0] = 1;
  temperature.data<float>()[0] = 1;
  std::copy(scores.begin(), scores.end(), keys.data<float>());
  Routing routing{Tensor::empty({1, k}, DType::i32), Tensor::empty({1, k}, DType::f32),
                  Tensor::empty({1, k}, DType::f32)};
  route_forward(*context, query, keys, nullptr, temperature, false, routing);
  return routing;
}

TEST(Route, EqualScoresGoToTheLowerExpert) {
  const Routing few = route_plainly({1, 3, 3, 0, 3, 1}, 4);
  EXPECT_EQ(std::vector<int>(few.indices.data<std::int32_t>(), few.indices.data<std::int32_t>() + 4),
            (std::vector<int>{1, 2, 4, 0}));
  const Routing many = route_plainly(std::vector<float>(40, 2.0f), 30);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(many.indices.data<std::int32_t>()[i], i);
}

TEST(Route, ScoresThatAreNotNumbersStillNameExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int k : {3, 20}) {
    const Routing routing = route_plainly(std::vector<float>(25, nan), k);
    std::set<int> seen;
    for (int i = 0; i < k; ++i) {
      const int e = routing.indices.data<std::int32_t>()[i];
      EXPECT_TRUE(e >= 0 && e < 25);
      seen.insert(e);
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(k));
  }
}

TEST(Route, ZeroRouterOutputGivesAFiniteQuery) {
  auto context = make_context("cpu", "fp32");
  const Tensor raw = Tensor::zeros({1, 4}, DType::f32);
  Tensor query = Tensor::empty({1, 4}, DType::f32), norms = Tensor::empty({1, 2}, DType::f32);
  query_forward(*context, raw, nullptr, 0, query, norms);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(query.data<float>()[i], 0.0f);
}

// Queries and keys of very different magnitudes: the error must be small compared with the lengths of the two, as in
// fp32.
TEST(Route, ScoresOfAModelInBfloat16HaveTheAccuracyOfFp32) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  constexpr std::int64_t tokens = 900, d = 448, experts = 200;
  constexpr int k = 32;
  Array query = normals({tokens, d}, "query"), keys = normals({experts, d}, "keys"), temperature = zeros({1});
  temperature[0] = 1;
  const auto rescale = [](Array& rows, std::int64_t count, int range) {
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t i = 0; i < d; ++i) {
        double& value = rows[r * d + i];
        if (r % 5 == 1) value *= std::pow(2.0, -static_cast<double>(i % 23));  // magnitudes that differ within a row
        value = static_cast<float>(value * std::pow(10.0, static_cast<double>(r % (2 * range + 1) - range)));
      }
    }
  };
  rescale(query, tokens, 25);
  rescale(keys, experts, 6);
  for (std::int64_t i = 0; i < d; ++i) query[3 * d + i] = keys[7 * d + i] = 0;
  for (std::int64_t i = 0; i < d; ++i) keys[9 * d + i] = keys[8 * d + i];  // equal keys
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    Lab lab("cuda", precision);
    Routing routing{lab.new_whole({tokens, k}), lab.new_master({tokens, k}), lab.new_master({tokens, k})};
    route_forward(lab.context(), lab.master(query), lab.master(keys), nullptr, lab.master(temperature), false, routing);
    const Array indices = read(routing.indices), scores = read(routing.scores);
    double worst = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::set<std::int64_t> seen;
      for (int i = 0; i < k; ++i) {
        const auto e = static_cast<std::int64_t>(indices[t * k + i]);
        ASSERT_TRUE(e >= 0 && e < experts && seen.insert(e).second);
        double score = 0, q = 0, key = 0;
        for (std::int64_t j = 0; j < d; ++j) {
          score += query[t * d + j] * keys[e * d + j];
          q += query[t * d + j] * query[t * d + j];
          key += keys[e * d + j] * keys[e * d + j];
        }
        const double error = std::abs(scores[t * k + i] - score);
        worst = std::max(worst, error / std::max(std::sqrt(q * key), 1e-30));
        if (i > 0) {
          EXPECT_LE(scores[t * k + i], scores[t * k + i - 1]);
          EXPECT_TRUE(scores[t * k + i] < scores[t * k + i - 1] || static_cast<double>(e) > indices[t * k + i - 1]);
        }
      }
      EXPECT_FALSE(seen.contains(9) && !seen.contains(8)) << "of two equal keys the lower goes first";
    }
    EXPECT_LE(worst, 1.5e-7);
  }
}

TEST(RandomChoice, DistinctAndSpreadEvenly) {
  constexpr int experts = 10, k = 4, ids = 5000;
  std::vector<int> first(experts), any(experts);
  for (int token = 0; token < ids; ++token) {
    std::int32_t chosen[k];
    hash_route_token(3, 1, token, experts, k, chosen);
    EXPECT_EQ(std::set<int>(chosen, chosen + k).size(), static_cast<std::size_t>(k));
    ++first[static_cast<std::size_t>(chosen[0])];
    for (const int e : chosen) ++any[static_cast<std::size_t>(e)];
  }
  for (int e = 0; e < experts; ++e) {
    EXPECT_NEAR(first[static_cast<std::size_t>(e)], ids / experts, 110);  // five standard deviations
    EXPECT_NEAR(any[static_cast<std::size_t>(e)], ids * k / experts, 180);
  }
  std::int32_t other_layer[k], other_seed[k], same[k], again[k];
  hash_route_token(3, 2, 0, experts, k, other_layer);
  hash_route_token(4, 1, 0, experts, k, other_seed);
  hash_route_token(3, 1, 0, experts, k, same);
  hash_route_token(3, 1, 0, experts, k, again);
  EXPECT_TRUE(std::equal(same, same + k, again));
  EXPECT_FALSE(std::equal(same, same + k, other_layer) && std::equal(same, same + k, other_seed));
}

}  // namespace
}  // namespace some::test
