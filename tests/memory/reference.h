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
  std::vector<std::vector<std::pair<std::int64_t, double>>> held;  // of each slot: tokens and tallies
  Row usage, weights;

  PlainMemory(const MemorySettings& how, Row middle) : settings(how), mean(std::move(middle)) {
    const auto slots = static_cast<std::size_t>(settings.slots);
    keys.assign(slots, Row(mean.size(), 0.0));
    held.assign(slots, {});
    usage.assign(slots, 0.0);
    weights.assign(static_cast<std::size_t>(settings.mixed()), 1.0 / static_cast<double>(settings.mixed()));
  }

  static Row normalized(Row row) {
    double square = 0;
    for (const double x : row) square += x * x;
    for (double& x : row) x /= std::max(std::sqrt(square), 1e-12);
    return row;
  }
  double count(std::size_t slot) const {
    double sum = 0;
    for (const auto& [token, tally] : held[slot]) sum += tally;
    return sum;
  }
  double tally_of(std::size_t slot, std::int64_t token) const {
    for (const auto& [own, tally] : held[slot]) {
      if (own == token) return tally;
    }
    return 0;
  }
  Row counts() const {
    Row out;
    for (std::size_t m = 0; m < held.size(); ++m) out.push_back(count(m));
    return out;
  }
  // As a store lays them out: an entry of all slots beside each other.
  Row values() const {
    return laid_out(-1, [](const auto& one) { return static_cast<double>(one.first); });
  }
  Row tallies() const {
    return laid_out(0, [](const auto& one) { return one.second; });
  }
  template <typename Of>
  Row laid_out(double nothing, Of of) const {
    Row out(held.size() * static_cast<std::size_t>(settings.values), nothing);
    for (std::size_t m = 0; m < held.size(); ++m) {
      for (std::size_t j = 0; j < held[m].size(); ++j) out[j * held.size() + m] = of(held[m][j]);
    }
    return out;
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
      if (count(m) > 0) highest = std::max(highest, sharpness * product(m, q) + log_count(m));
    }
    for (std::size_t m = 0; m < keys.size(); ++m) {
      if (!(count(m) > 0)) continue;
      const double weight = std::exp(sharpness * product(m, q) + log_count(m) - highest);
      all += weight;
      right += weight * tally_of(m, target) / count(m);
    }
    return all > 0 ? right / all : 0.0;
  }
  double log_count(std::size_t slot) const { return settings.counts ? std::log(count(slot)) : 0.0; }

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
    std::vector<std::vector<std::pair<Row, std::int64_t>>> hits(keys.size());
    std::vector<std::pair<Row, std::int64_t>> misses;
    for (std::size_t t = 0; t < states.size(); ++t) {
      if (targets[t] < 0) continue;
      const Row q = query(states[t]);
      double best = settings.match;
      std::size_t found = keys.size();
      for (std::size_t m = 0; m < keys.size(); ++m) {
        if (tally_of(m, targets[t]) > 0 && product(m, q) > best) {
          best = product(m, q);
          found = m;
        }
      }
      if (found < keys.size())
        hits[found].emplace_back(q, targets[t]);
      else
        misses.emplace_back(q, targets[t]);
    }
    for (std::size_t m = 0; m < keys.size(); ++m) {
      if (hits[m].empty()) continue;
      const double more = static_cast<double>(hits[m].size());
      Row sum(mean.size(), 0.0);
      for (const auto& [q, token] : hits[m]) {
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += q[c];
      }
      move(m, sum, count(m) + more);
      for (const auto& [q, token] : hits[m]) {
        for (auto& [own, tally] : held[m]) tally += own == token;
      }
      usage[m] += more;
    }
    std::vector<std::size_t> order(keys.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return usage[a] < usage[b]; });
    order.resize(std::min(order.size(), misses.size()));
    if (settings.inherit) pass_on(order);
    for (std::size_t j = 0; j < order.size(); ++j) {
      keys[order[j]] = misses[j].first;
      held[order[j]] = {{misses[j].second, 1.0}};
      usage[order[j]] = 1;
    }
  }

  void move(std::size_t slot, const Row& sum, double total) {
    for (std::size_t c = 0; c < sum.size(); ++c) keys[slot][c] = (count(slot) * keys[slot][c] + sum[c]) / total;
    keys[slot] = normalized(keys[slot]);
  }

  // What slots hold that give way goes to the nearest of those that stay.
  void pass_on(const std::vector<std::size_t>& giving_way) {
    std::vector<std::vector<std::size_t>> left(keys.size());
    for (const std::size_t slot : giving_way) {
      if (!(count(slot) > 0)) continue;
      double best = -1e300;
      std::size_t heir = keys.size();
      for (std::size_t m = 0; m < keys.size(); ++m) {
        const bool stays = std::find(giving_way.begin(), giving_way.end(), m) == giving_way.end();
        if (!stays || !(count(m) > 0) || product(m, keys[slot]) <= best) continue;
        if (settings.values == 1 && held[m][0].first != held[slot][0].first) continue;
        best = product(m, keys[slot]);
        heir = m;
      }
      if (heir < keys.size()) left[heir].push_back(slot);
    }
    for (std::size_t heir = 0; heir < keys.size(); ++heir) {
      if (left[heir].empty()) continue;
      Row sum(mean.size(), 0.0);
      double total = count(heir);
      for (const std::size_t slot : left[heir]) {
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += count(slot) * keys[slot][c];
        total += count(slot);
        usage[heir] += usage[slot];
      }
      move(heir, sum, total);
      for (const std::size_t slot : left[heir]) {
        for (const auto& [token, tally] : held[slot]) take(held[heir], token, tally);
      }
    }
  }
  void take(std::vector<std::pair<std::int64_t, double>>& own, std::int64_t token, double tally) const {
    for (auto& one : own) {
      if (one.first != token) continue;
      one.second += tally;
      return;
    }
    if (std::ssize(own) < settings.values) return own.emplace_back(token, tally), void();
    const auto least =
        std::min_element(own.begin(), own.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (least->second <= tally) *least = {token, tally};
  }
};

}  // namespace some::memory::test
