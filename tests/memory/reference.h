// Reference implementation of the memory (spec 8), as plain as possible: one position and one slot at a time, in double
// precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "memory/settings.h"

namespace some::test {

using Row = std::vector<double>;

struct ReferenceMemory {
  MemorySettings settings;
  Row mean;
  std::vector<Row> keys;
  std::vector<std::vector<std::pair<std::int64_t, double>>> contents;  // per slot: tokens and their counts
  Row usage, weights;
  std::vector<Row> centroids;  // centroids of the active partitions: sums of their queries

  ReferenceMemory(const MemorySettings& how, Row middle) : settings(how), mean(std::move(middle)) {
    const auto slots = static_cast<std::size_t>(settings.slots);
    keys.assign(slots, Row(mean.size(), 0.0));
    contents.assign(slots, {});
    usage.assign(slots, 0.0);
    weights.assign(static_cast<std::size_t>(settings.mixed()), 1.0 / static_cast<double>(settings.mixed()));
    centroids.assign(1, Row(mean.size(), 0.0));
  }

  std::size_t partition_size() const { return keys.size() / static_cast<std::size_t>(settings.partitions); }
  // Returns the partitions that a query searches, nearest first.
  std::vector<std::size_t> searched(const Row& q) const {
    std::vector<std::pair<double, std::size_t>> near;
    for (std::size_t p = 0; p < centroids.size(); ++p) {
      const Row towards = normalized(centroids[p]);
      near.emplace_back(-std::inner_product(q.begin(), q.end(), towards.begin(), 0.0), p);
    }
    std::sort(near.begin(), near.end());
    std::vector<std::size_t> out;
    for (const auto& [far, part] : near) {
      if (std::ssize(out) < settings.nprobe) out.push_back(part);
    }
    return out;
  }
  // Returns the slots that a query is compared with, in order.
  std::vector<std::size_t> seen_from(const Row& q) const {
    std::vector<std::size_t> out;
    for (std::size_t part : searched(q)) {
      for (std::size_t m = part * partition_size(); m < (part + 1) * partition_size(); ++m) out.push_back(m);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  static Row normalized(Row row) {
    double square = 0;
    for (const double x : row) square += x * x;
    for (double& x : row) x /= std::max(std::sqrt(square), 1e-12);
    return row;
  }
  double count(std::size_t slot) const {
    double sum = 0;
    for (const auto& [token, count] : contents[slot]) sum += count;
    return sum;
  }
  double count_of(std::size_t slot, std::int64_t token) const {
    for (const auto& [own, count] : contents[slot]) {
      if (own == token) return count;
    }
    return 0;
  }
  Row counts() const {
    Row out;
    for (std::size_t m = 0; m < contents.size(); ++m) out.push_back(count(m));
    return out;
  }
  // In the layout of a store: all slots of one entry contiguous.
  Row values() const {
    return laid_out(-1, [](const auto& one) { return static_cast<double>(one.first); });
  }
  Row entry_counts() const {
    return laid_out(0, [](const auto& one) { return one.second; });
  }
  template <typename Of>
  Row laid_out(double nothing, Of of) const {
    Row out(contents.size() * static_cast<std::size_t>(settings.values), nothing);
    for (std::size_t m = 0; m < contents.size(); ++m) {
      for (std::size_t j = 0; j < contents[m].size(); ++j) out[j * contents.size() + m] = of(contents[m][j]);
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

  double memory_prob(const Row& q, std::int64_t target, double beta) const {
    double all = 0, right = 0, highest = -1e300;
    const std::vector<std::size_t> seen = seen_from(q);
    for (const std::size_t m : seen) {
      if (count(m) > 0) highest = std::max(highest, beta * product(m, q) + log_count(m));
    }
    for (const std::size_t m : seen) {
      if (!(count(m) > 0)) continue;
      const double weight = std::exp(beta * product(m, q) + log_count(m) - highest);
      all += weight;
      right += weight * count_of(m, target) / count(m);
    }
    return all > 0 ? right / all : 0.0;
  }
  double log_count(std::size_t slot) const { return settings.counts * std::log(count(slot)); }

  // Returns losses of the mixture; targets below 0 are skipped (their loss is unchanged).
  Row read(const std::vector<Row>& states, const std::vector<std::int32_t>& targets, Row nll) {
    for (std::size_t t = 0; t < states.size(); ++t) {
      if (targets[t] < 0) continue;
      const Row q = query(states[t]);
      Row parts;
      double answer = 0;
      for (const double beta : settings.beta) {
        const double memory = memory_prob(q, targets[t], beta);
        for (const double share : mixture_shares) {
          parts.push_back(weights[parts.size()] * ((1 - share) * std::exp(-nll[t]) + share * memory));
          answer += parts.back();
        }
      }
      for (std::size_t i = 0; i < parts.size(); ++i)
        weights[i] =
            (1 - settings.switch_rate) * parts[i] / answer + settings.switch_rate / static_cast<double>(parts.size());
      nll[t] = -std::log(answer);
    }
    return nll;
  }

  void learn(const std::vector<Row>& states, const std::vector<std::int32_t>& targets) {
    for (double& u : usage) u *= 1 - settings.decay;
    std::vector<std::vector<std::pair<Row, std::int64_t>>> hits(keys.size());
    std::vector<std::pair<Row, std::int64_t>> misses;
    std::vector<std::pair<std::size_t, Row>> taken;  // by partition
    for (std::size_t t = 0; t < states.size(); ++t) {
      if (targets[t] < 0) continue;
      const Row q = query(states[t]);
      double best = settings.threshold;
      std::size_t found = keys.size();
      for (const std::size_t m : seen_from(q)) {
        if (count_of(m, targets[t]) > 0 && product(m, q) > best) {
          best = product(m, q);
          found = m;
        }
      }
      if (found < keys.size()) {
        hits[found].emplace_back(q, targets[t]);
        taken.emplace_back(found / partition_size(), q);
      } else {
        misses.emplace_back(q, targets[t]);
      }
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
        for (auto& [own, count] : contents[m]) count += own == token;
      }
      usage[m] += more;
    }
    std::vector<std::size_t> order, births;  // slots, and the misses that take them
    std::vector<bool> gone(keys.size(), false);
    for (std::size_t j = 0; j < misses.size(); ++j) {
      std::size_t best = keys.size();
      for (const std::size_t part : searched(misses[j].first)) {
        for (std::size_t m = part * partition_size(); m < (part + 1) * partition_size(); ++m) {
          if (gone[m]) continue;
          // between empty slots, the nearer partition
          const bool equal = best < keys.size() && usage[m] == usage[best];
          if (best == keys.size() || usage[m] < usage[best] || (equal && usage[m] > 0 && m < best)) best = m;
        }
      }
      if (best == keys.size()) continue;
      gone[best] = true;
      order.push_back(best);
      births.push_back(j);
      taken.emplace_back(best / partition_size(), misses[j].first);
    }
    if (settings.merge_evicted) merge_evicted(order);
    for (std::size_t i = 0; i < order.size(); ++i) {
      keys[order[i]] = misses[births[i]].first;
      contents[order[i]] = {{misses[births[i]].second, 1.0}};
      usage[order[i]] = 1;
    }
    for (const auto& [part, q] : taken) {
      for (std::size_t c = 0; c < q.size(); ++c) centroids[part][c] += q[c];
    }
    for (std::size_t part = 0, active = centroids.size(); part < active; ++part) divide_if_full(part);
  }

  // One refinement pass: assigns every position to its best slot, and rebuilds slots from their positions.
  void refine(const std::vector<std::vector<Row>>& states, const std::vector<std::vector<std::int32_t>>& targets) {
    const Row n = counts();
    ReferenceMemory fresh(settings, mean);
    fresh.centroids.assign(centroids.size(), Row(mean.size(), 0.0));
    for (std::size_t w = 0; w < states.size(); ++w) {
      for (std::size_t t = 0; t < states[w].size(); ++t) {
        const std::int32_t token = targets[w][t];
        if (token < 0) continue;
        const Row q = query(states[w][t]);
        double best = -1e300;
        std::size_t home = keys.size();
        for (const std::size_t m : seen_from(q)) {
          const double count = n[m] > 0 ? count_of(m, token) : 0;
          if (!(n[m] > 0) || (settings.values == 1 && !(count > 0))) continue;
          const double suits = product(m, q) + token_affinity * count / n[m];
          if (suits > best) {
            best = suits;
            home = m;
          }
        }
        if (home == keys.size()) continue;
        for (std::size_t c = 0; c < q.size(); ++c) {
          fresh.keys[home][c] += q[c];
          fresh.centroids[home / partition_size()][c] += q[c];
        }
        take(fresh.contents[home], token, 1);
      }
    }
    for (std::size_t m = 0; m < keys.size(); ++m) {
      fresh.keys[m] = normalized(fresh.keys[m]);
      fresh.usage[m] = fresh.count(m);
    }
    fresh.weights = weights;
    *this = fresh;
  }

  // A partition that is more than three quarters full gives about half of its slots to the next inactive one.
  void divide_if_full(std::size_t part) {
    const std::size_t size = partition_size(), first = part * size, fresh = centroids.size() * size;
    std::vector<std::size_t> slots;
    for (std::size_t m = first; m < first + size; ++m) {
      if (count(m) > 0) slots.push_back(m);
    }
    if (fresh == keys.size() || 4 * slots.size() <= 3 * size) return;
    const auto farthest = [&](const Row& from) {
      return *std::min_element(slots.begin(), slots.end(),
                               [&](std::size_t a, std::size_t b) { return product(a, from) < product(b, from); });
    };
    const Row one = keys[farthest(centroids[part])], other = keys[farthest(one)];
    Row axis(mean.size());
    for (std::size_t c = 0; c < axis.size(); ++c) axis[c] = one[c] - other[c];
    std::vector<std::size_t> stay, go;
    std::size_t going = slots.size() / 2;
    for (int round = 0; round < 7; ++round) {
      std::vector<std::size_t> sorted = slots;
      std::stable_sort(sorted.begin(), sorted.end(),
                       [&](std::size_t a, std::size_t b) { return product(a, axis) < product(b, axis); });
      stay.assign(sorted.begin(), sorted.end() - static_cast<std::ptrdiff_t>(going));
      go.assign(sorted.end() - static_cast<std::ptrdiff_t>(going), sorted.end());
      if (stay.empty() || go.empty()) break;
      // Each slot goes to the nearer mean, but at least a quarter to either side.
      double border = 0;
      for (std::size_t c = 0; c < axis.size(); ++c) {
        double here = 0, there = 0;
        for (const std::size_t m : stay) here += keys[m][c] / static_cast<double>(stay.size());
        for (const std::size_t m : go) there += keys[m][c] / static_cast<double>(go.size());
        axis[c] = there - here;
        border += axis[c] * (there + here) / 2;
      }
      going = 0;
      for (const std::size_t m : slots) going += product(m, axis) > border;
      going = std::clamp(going, slots.size() / 4, slots.size() - slots.size() / 4);
    }
    std::sort(stay.begin(), stay.end());
    std::sort(go.begin(), go.end());
    const std::vector<Row> old_keys = keys;
    const auto old_held = contents;
    const Row old_usage = usage;
    for (std::size_t m = first; m < first + size; ++m) put(m, Row(mean.size(), 0.0), {}, 0.0);
    centroids[part].assign(mean.size(), 0.0);
    centroids.push_back(centroids[part]);
    const auto fill = [&](const std::vector<std::size_t>& from, std::size_t to, Row& centre) {
      for (const std::size_t m : from) {
        put(to, old_keys[m], old_held[m], old_usage[m]);
        for (std::size_t c = 0; c < centre.size(); ++c) centre[c] += count(to) * old_keys[m][c];
        ++to;
      }
    };
    fill(stay, first, centroids[part]);
    fill(go, fresh, centroids.back());
  }
  void put(std::size_t slot, const Row& key, const std::vector<std::pair<std::int64_t, double>>& tokens, double used) {
    keys[slot] = key;
    contents[slot] = tokens;
    usage[slot] = used;
  }

  void move(std::size_t slot, const Row& sum, double total) {
    for (std::size_t c = 0; c < sum.size(); ++c) keys[slot][c] = (count(slot) * keys[slot][c] + sum[c]) / total;
    keys[slot] = normalized(keys[slot]);
  }

  // Merges the content of evicted slots into the nearest of the remaining ones.
  void merge_evicted(const std::vector<std::size_t>& evicted) {
    std::vector<std::vector<std::size_t>> left(keys.size());
    for (const std::size_t slot : evicted) {
      if (!(count(slot) > 0)) continue;
      double best = -1e300;
      std::size_t merge_target = keys.size();
      for (const std::size_t m : seen_from(keys[slot])) {
        const bool stays = std::find(evicted.begin(), evicted.end(), m) == evicted.end();
        if (!stays || !(count(m) > 0) || product(m, keys[slot]) <= best) continue;
        if (settings.values == 1 && contents[m][0].first != contents[slot][0].first) continue;
        best = product(m, keys[slot]);
        merge_target = m;
      }
      if (merge_target < keys.size()) left[merge_target].push_back(slot);
    }
    for (std::size_t merge_target = 0; merge_target < keys.size(); ++merge_target) {
      if (left[merge_target].empty()) continue;
      Row sum(mean.size(), 0.0);
      double total = count(merge_target);
      for (const std::size_t slot : left[merge_target]) {
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += count(slot) * keys[slot][c];
        total += count(slot);
        usage[merge_target] += usage[slot];
      }
      move(merge_target, sum, total);
      for (const std::size_t slot : left[merge_target]) {
        for (const auto& [token, count] : contents[slot]) take(contents[merge_target], token, count);
      }
    }
  }
  void take(std::vector<std::pair<std::int64_t, double>>& own, std::int64_t token, double count) const {
    for (auto& one : own) {
      if (one.first != token) continue;
      one.second += count;
      return;
    }
    if (std::ssize(own) < settings.values) return own.emplace_back(token, count), void();
    const auto least =
        std::min_element(own.begin(), own.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (least->second <= count) *least = {token, count};
  }
};

}  // namespace some::test
