// The memory once more, as plain as it can be said (spec 8): one position, one slot at a time, in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "memory/settings.h"

namespace some::memory::test {

using Row = std::vector<double>;

struct PlainMemory {
  MemorySettings settings;
  Row mean;
  std::vector<Row> keys;
  std::vector<std::int64_t> values;
  Row counts, usage, weights;

  PlainMemory(const MemorySettings& how, Row middle) : settings(how), mean(std::move(middle)) {
    const auto slots = static_cast<std::size_t>(settings.slots);
    keys.assign(slots, Row(mean.size(), 0.0));
    values.assign(slots, -1);
    counts.assign(slots, 0.0);
    usage.assign(slots, 0.0);
    weights.assign(static_cast<std::size_t>(settings.mixed()), 1.0 / static_cast<double>(settings.mixed()));
  }

  static Row normalized(Row row) {
    double square = 0;
    for (const double x : row) square += x * x;
    for (double& x : row) x /= std::max(std::sqrt(square), 1e-12);
    return row;
  }
  Row query(const Row& state) const {
    Row q(state.size());
    for (std::size_t c = 0; c < q.size(); ++c) q[c] = state[c] - mean[c];
    return normalized(q);
  }
  double product(std::size_t slot, const Row& q) const {
    return std::inner_product(q.begin(), q.end(), keys[slot].begin(), 0.0);
  }

  double said(const Row& q, std::int64_t target, double sharpness) const {
    double all = 0, right = 0, highest = -1e300;
    for (std::size_t m = 0; m < keys.size(); ++m) {
      if (counts[m] > 0) highest = std::max(highest, sharpness * product(m, q) + log_count(m));
    }
    for (std::size_t m = 0; m < keys.size(); ++m) {
      if (!(counts[m] > 0)) continue;
      const double weight = std::exp(sharpness * product(m, q) + log_count(m) - highest);
      all += weight;
      right += values[m] == target ? weight : 0.0;
    }
    return all > 0 ? right / all : 0.0;
  }
  double log_count(std::size_t slot) const { return settings.counts ? std::log(counts[slot]) : 0.0; }

  // Losses of the mixture; targets below 0 are passed over (their loss stays).
  Row read(const std::vector<Row>& states, const std::vector<std::int32_t>& targets, Row nll) {
    for (std::size_t t = 0; t < states.size(); ++t) {
      if (targets[t] < 0) continue;
      const Row q = query(states[t]);
      Row parts;
      double answer = 0;
      for (const double sharpness : settings.sharpness) {
        const double memory = said(q, targets[t], sharpness);
        for (const double share : share_list) {
          parts.push_back(weights[parts.size()] * ((1 - share) * std::exp(-nll[t]) + share * memory));
          answer += parts.back();
        }
      }
      for (std::size_t i = 0; i < parts.size(); ++i)
        weights[i] = (1 - settings.share) * parts[i] / answer + settings.share / static_cast<double>(parts.size());
      nll[t] = -std::log(answer);
    }
    return nll;
  }

  void learn(const std::vector<Row>& states, const std::vector<std::int32_t>& targets) {
    for (double& u : usage) u *= 1 - settings.decay;
    std::vector<std::vector<Row>> hits(keys.size());
    std::vector<std::pair<Row, std::int64_t>> misses;
    for (std::size_t t = 0; t < states.size(); ++t) {
      if (targets[t] < 0) continue;
      const Row q = query(states[t]);
      double best = settings.match;
      std::size_t found = keys.size();
      for (std::size_t m = 0; m < keys.size(); ++m) {
        if (counts[m] > 0 && values[m] == targets[t] && product(m, q) > best) {
          best = product(m, q);
          found = m;
        }
      }
      if (found < keys.size())
        hits[found].push_back(q);
      else
        misses.emplace_back(q, targets[t]);
    }
    for (std::size_t m = 0; m < keys.size(); ++m) {
      if (hits[m].empty()) continue;
      const double more = static_cast<double>(hits[m].size());
      Row sum(mean.size(), 0.0);
      for (const Row& q : hits[m]) {
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += q[c];
      }
      for (std::size_t c = 0; c < sum.size(); ++c) keys[m][c] = (counts[m] * keys[m][c] + sum[c]) / (counts[m] + more);
      keys[m] = normalized(keys[m]);
      counts[m] += more;
      usage[m] += more;
    }
    std::vector<std::size_t> order(keys.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return usage[a] < usage[b]; });
    for (std::size_t j = 0; j < std::min(order.size(), misses.size()); ++j) {
      keys[order[j]] = misses[j].first;
      values[order[j]] = misses[j].second;
      counts[order[j]] = usage[order[j]] = 1;
    }
  }
};

}  // namespace some::memory::test
