// Statistics of guilds: mutual information, purity and affinity of assignments against shuffled labels.
#include "analysis/label_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace some {
namespace {

struct Scores {
  double information = 0, purity = 0;
  std::vector<double> expert_z, set_z;  // by label: the largest z
};

// Quantities that do not change when labels are shuffled.
struct Fixed {
  std::int64_t positions = 0;
  std::vector<std::int64_t> expert_count;
  double expert_bits = 0;   // sum of n_e log2 n_e
  std::vector<int> set_of;  // by position; -1: a set below min_count
  std::vector<std::vector<int>> sets;
  std::vector<std::int64_t> set_count;
};

// Positions sorted by label (counting sort).
struct Grouping {
  std::vector<std::int64_t> begin;  // start of each label's group
  std::vector<std::int32_t> order;
  std::int64_t count(int label) const {
    return begin[static_cast<std::size_t>(label) + 1] - begin[static_cast<std::size_t>(label)];
  }
};

Grouping group(const std::vector<std::int32_t>& label, int labels) {
  Grouping out;
  out.begin.assign(static_cast<std::size_t>(labels) + 1, 0);
  for (const std::int32_t v : label) out.begin[static_cast<std::size_t>(v) + 1] += 1;
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  out.order.resize(label.size());
  std::vector<std::int64_t> at(out.begin.begin(), out.begin.end() - 1);
  for (std::size_t t = 0; t < label.size(); ++t)
    out.order[static_cast<std::size_t>(at[static_cast<std::size_t>(label[t])]++)] = static_cast<std::int32_t>(t);
  return out;
}

Fixed prepare(const LabeledAssignments& c, const LabelTestOptions& options) {
  Fixed fixed;
  fixed.positions = static_cast<std::int64_t>(c.label.size());
  fixed.expert_count.assign(static_cast<std::size_t>(c.experts), 0);
  for (const std::int32_t e : c.chosen) fixed.expert_count[static_cast<std::size_t>(e)] += 1;
  for (const std::int64_t n : fixed.expert_count) {
    if (n > 0) fixed.expert_bits += static_cast<double>(n) * std::log2(static_cast<double>(n));
  }
  if (!options.affinities) return fixed;
  std::map<std::vector<int>, std::vector<std::int32_t>> seen;
  for (std::int64_t t = 0; t < fixed.positions; ++t) {
    std::vector<int> set(c.chosen.begin() + t * c.top_k, c.chosen.begin() + (t + 1) * c.top_k);
    std::sort(set.begin(), set.end());
    seen[std::move(set)].push_back(static_cast<std::int32_t>(t));
  }
  std::vector<const std::pair<const std::vector<int>, std::vector<std::int32_t>>*> order;
  for (const auto& entry : seen) {
    if (static_cast<std::int64_t>(entry.second.size()) >= options.min_count) order.push_back(&entry);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->second.size() > b->second.size(); });
  fixed.set_of.assign(c.label.size(), -1);
  for (const auto* entry : order) {
    for (const std::int32_t t : entry->second)
      fixed.set_of[static_cast<std::size_t>(t)] = static_cast<int>(fixed.sets.size());
    fixed.sets.push_back(entry->first);
    fixed.set_count.push_back(static_cast<std::int64_t>(entry->second.size()));
  }
  return fixed;
}

// Types sorted by decreasing frequency are shuffled in blocks of this size, so that the labels approximately keep their
// base rates.
constexpr std::size_t types_in_a_block = 16;

struct Types {
  std::vector<std::int32_t> by_frequency;  // types that occur, most frequent first
  std::vector<std::int32_t> label;         // by type
};

Types find_types(const LabeledAssignments& c) {
  if (c.type.size() != c.label.size())
    failed(Code::internal, "shuffling types needs a type for each of the {} positions, not {}", c.label.size(),
           c.type.size());
  Types out;
  const std::int32_t most = *std::max_element(c.type.begin(), c.type.end());
  std::vector<std::int64_t> count(static_cast<std::size_t>(most) + 1, 0);
  out.label.assign(count.size(), 0);
  for (std::size_t t = 0; t < c.type.size(); ++t) {
    const auto type = static_cast<std::size_t>(c.type[t]);
    if (count[type]++ == 0)
      out.by_frequency.push_back(c.type[t]);
    else if (out.label[type] != c.label[t])
      failed(Code::internal, "type {} has two labels", type);
    out.label[type] = c.label[t];
  }
  std::sort(out.by_frequency.begin(), out.by_frequency.end(), [&](std::int32_t a, std::int32_t b) {
    const std::int64_t n = count[static_cast<std::size_t>(a)], m = count[static_cast<std::size_t>(b)];
    return n != m ? n > m : a < b;
  });
  return out;
}

Grouping shuffle_types(const LabeledAssignments& c, const Types& types, const RandomStream& stream) {
  std::vector<std::int32_t> dealt = types.label;
  for (std::size_t first = 0; first < types.by_frequency.size(); first += types_in_a_block) {
    const std::size_t last = std::min(types.by_frequency.size(), first + types_in_a_block);
    for (std::size_t i = last - 1; i > first; --i) {
      const std::size_t j = first + stream.below(i, static_cast<std::uint32_t>(i - first + 1));
      std::swap(dealt[static_cast<std::size_t>(types.by_frequency[i])],
                dealt[static_cast<std::size_t>(types.by_frequency[j])]);
    }
  }
  std::vector<std::int32_t> label(c.label.size());
  for (std::size_t t = 0; t < label.size(); ++t) label[t] = dealt[static_cast<std::size_t>(c.type[t])];
  return group(label, c.labels);
}

Grouping shuffle_positions(const Grouping& real, const RandomStream& stream) {
  Grouping out = real;
  std::iota(out.order.begin(), out.order.end(), 0);
  for (std::size_t i = out.order.size(); i > 1; --i)
    std::swap(out.order[i - 1], out.order[stream.below(i, static_cast<std::uint32_t>(i))]);
  return out;
}

double deviations(double hits, double count, double base) {
  const double spread = std::sqrt(count * base * (1 - base));
  return spread > 0 ? (hits - count * base) / spread : 0.0;
}

// Called for each label with the number of its positions at which each expert and set fired.
using GroupVisitor = std::function<void(int label, const std::vector<std::int64_t>& expert_hits,
                                        const std::vector<std::int64_t>& set_hits)>;

Scores score(const LabeledAssignments& c, const Fixed& fixed, const LabelTestOptions& options, const Grouping& groups,
             const GroupVisitor& visit) {
  Scores scores;
  std::vector<std::int64_t> hits(static_cast<std::size_t>(c.experts), 0), most(hits.size(), 0),
      set_hits(fixed.sets.size(), 0);
  std::vector<std::int32_t> touched;
  double sum = 0, label_bits = 0;
  const double positions = static_cast<double>(fixed.positions);
  for (int v = 0; v < c.labels; ++v) {
    touched.clear();
    const double members = static_cast<double>(groups.count(v)) * c.top_k;
    if (members > 0) label_bits += members * std::log2(members);
    for (std::int64_t i = groups.begin[static_cast<std::size_t>(v)]; i < groups.begin[static_cast<std::size_t>(v) + 1];
         ++i) {
      const auto t = static_cast<std::size_t>(groups.order[static_cast<std::size_t>(i)]);
      for (std::size_t j = t * static_cast<std::size_t>(c.top_k); j < (t + 1) * static_cast<std::size_t>(c.top_k);
           ++j) {
        const std::int32_t e = c.chosen[j];
        if (hits[static_cast<std::size_t>(e)]++ == 0) touched.push_back(e);
      }
      if (options.affinities && fixed.set_of[t] >= 0) set_hits[static_cast<std::size_t>(fixed.set_of[t])] += 1;
    }
    if (options.affinities) {
      const double base = static_cast<double>(groups.count(v)) / positions;
      double best = -INFINITY, best_set = -INFINITY;
      for (std::size_t e = 0; e < hits.size(); ++e) {
        if (fixed.expert_count[e] >= options.min_count)
          best = std::max(best,
                          deviations(static_cast<double>(hits[e]), static_cast<double>(fixed.expert_count[e]), base));
      }
      for (std::size_t s = 0; s < set_hits.size(); ++s)
        best_set = std::max(
            best_set, deviations(static_cast<double>(set_hits[s]), static_cast<double>(fixed.set_count[s]), base));
      scores.expert_z.push_back(best);
      scores.set_z.push_back(best_set);
    }
    if (visit) visit(v, hits, set_hits);
    for (const std::int32_t e : touched) {
      std::int64_t& n = hits[static_cast<std::size_t>(e)];
      sum += static_cast<double>(n) * std::log2(static_cast<double>(n));
      most[static_cast<std::size_t>(e)] = std::max(most[static_cast<std::size_t>(e)], n);
      n = 0;
    }
    std::fill(set_hits.begin(), set_hits.end(), 0);
  }
  // I = sum n log2(n N / (n_e n_v)) / N
  const double total = static_cast<double>(c.chosen.size());
  scores.information = std::max(0.0, std::log2(total) + (sum - fixed.expert_bits - label_bits) / total);
  scores.purity = static_cast<double>(std::accumulate(most.begin(), most.end(), std::int64_t{0})) / total;
  return scores;
}

}  // namespace

ChanceTest compare_with_chance(double value, const std::vector<double>& shuffled) {
  ChanceTest out;
  out.value = value;
  if (shuffled.empty()) return out;
  const double count = static_cast<double>(shuffled.size());
  double larger = 0, square = 0;
  for (const double x : shuffled) {
    out.mean += x / count;
    larger += x >= value;
  }
  for (const double x : shuffled) square += (x - out.mean) * (x - out.mean);
  out.deviation = shuffled.size() > 1 ? std::sqrt(square / (count - 1)) : 0.0;
  // Shuffles that differ only by rounding do not vary.
  if (out.deviation > 1e-12 * std::max(1.0, std::abs(out.mean))) out.z = (value - out.mean) / out.deviation;
  out.p = (1 + larger) / (1 + count);
  return out;
}

LabelTest test_labels(Threads& threads, const LabeledAssignments& c, const LabelTestOptions& options) {
  if (c.label.empty())
    bad_input(Code::data_nothing_to_predict, "the text has no token to predict; use longer documents");
  if (options.shuffles < 1) bad_input(Code::option_invalid, "{} {}: must be >= 1", "--shuffles", options.shuffles);
  const Fixed fixed = prepare(c, options);
  LabelTest test;
  test.sets = fixed.sets;
  for (const std::int64_t n : fixed.expert_count) {
    const double share = static_cast<double>(n) / static_cast<double>(c.chosen.size());
    if (n > 0) test.expert_entropy -= share * std::log2(share);
  }

  const Grouping real_groups = group(c.label, c.labels);
  const Types types = options.shuffle_types ? find_types(c) : Types();
  std::vector<Scores> shuffled(static_cast<std::size_t>(options.shuffles));
  parallel_for(threads, options.shuffles, [&](std::int64_t round) {
    const RandomStream stream = random_stream(options.seed, fmt::format("guilds.{}", round));
    shuffled[static_cast<std::size_t>(round)] =
        score(c, fixed, options,
              options.shuffle_types ? shuffle_types(c, types, stream) : shuffle_positions(real_groups, stream), {});
  });
  const auto column = [&](auto value) {
    std::vector<double> out;
    for (const Scores& one : shuffled) out.push_back(value(one));
    return out;
  };

  const std::size_t labels = static_cast<std::size_t>(c.labels);
  if (options.affinities) {
    test.expert_affinity.resize(labels);
    test.set_affinity.resize(labels);
  }
  // Prefers significant units and among them the largest share; without a significant unit, the one with the largest z.
  const auto pick = [&](int label, const std::vector<std::int64_t>& hits, const std::vector<std::int64_t>& counts,
                        const std::vector<double>& largest_z, Affinity& best) {
    const std::int64_t with_label = real_groups.count(label);
    bool best_certain = false;
    for (std::size_t unit = 0; unit < hits.size(); ++unit) {
      if (counts[unit] < options.min_count || with_label == 0) continue;
      Affinity one;
      one.unit = static_cast<int>(unit);
      one.count = counts[unit];
      one.base = static_cast<double>(with_label) / static_cast<double>(fixed.positions);
      one.share = static_cast<double>(hits[unit]) / static_cast<double>(counts[unit]);
      one.recall = static_cast<double>(hits[unit]) / static_cast<double>(with_label);
      one.z = deviations(static_cast<double>(hits[unit]), static_cast<double>(counts[unit]), one.base);
      one.p = compare_with_chance(one.z, largest_z).p;
      const bool certain = one.p <= 0.05;
      if (best.unit < 0 || (certain && !best_certain) ||
          (certain == best_certain && (certain ? one.share > best.share : one.z > best.z))) {
        best = one;
        best_certain = certain;
      }
    }
  };
  const Scores real =
      score(c, fixed, options, real_groups, [&](int label, const auto& expert_hits, const auto& set_hits) {
        if (!options.affinities) return;
        const auto l = static_cast<std::size_t>(label);
        pick(label, expert_hits, fixed.expert_count, column([&](const Scores& one) { return one.expert_z[l]; }),
             test.expert_affinity[l]);
        pick(label, set_hits, fixed.set_count, column([&](const Scores& one) { return one.set_z[l]; }),
             test.set_affinity[l]);
      });
  test.information = compare_with_chance(real.information, column([](const Scores& one) { return one.information; }));
  test.purity = compare_with_chance(real.purity, column([](const Scores& one) { return one.purity; }));
  return test;
}

}  // namespace some
