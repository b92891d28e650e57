#include "keys/measures.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.h"

namespace some {

double gini(std::vector<double> usage) {
  std::sort(usage.begin(), usage.end());
  const double count = static_cast<double>(usage.size());
  double total = 0.0, weighted = 0.0;
  for (std::size_t i = 0; i < usage.size(); ++i) {
    total += usage[i];
    weighted += (2.0 * static_cast<double>(i + 1) - count - 1.0) * usage[i];
  }
  return total > 0.0 ? weighted / (count * total) : 0.0;
}

double entropy_bits(const std::vector<double>& usage) {
  const double total = std::accumulate(usage.begin(), usage.end(), 0.0);
  if (!(total > 0.0)) return 0.0;
  double entropy = 0.0;
  for (const double x : usage) {
    if (x > 0.0) entropy -= x / total * std::log2(x / total);
  }
  return std::max(entropy, 0.0);  // not -0 when one expert has everything
}

double effective_experts(const std::vector<double>& usage) {
  const double total = std::accumulate(usage.begin(), usage.end(), 0.0);
  return total > 0.0 ? std::exp2(entropy_bits(usage)) : 0.0;
}

double max_over_mean_load(const std::vector<double>& usage) {
  const double total = std::accumulate(usage.begin(), usage.end(), 0.0);
  if (!(total > 0.0)) return 0.0;
  return *std::max_element(usage.begin(), usage.end()) / total * static_cast<double>(usage.size());
}

std::vector<Clique> frequent_sets(const std::vector<std::int32_t>& indices, int top_k, std::size_t most) {
  if (top_k < 1 || indices.size() % static_cast<std::size_t>(top_k) != 0) {
    failed(Code::shape_mismatch, "{} assignments are not a multiple of the {} per token", indices.size(), top_k);
  }
  std::map<std::vector<int>, std::int64_t> seen;
  for (auto first = indices.begin(); first != indices.end(); first += top_k) {
    std::vector<int> experts(first, first + top_k);
    std::sort(experts.begin(), experts.end());
    ++seen[std::move(experts)];
  }
  const double tokens = static_cast<double>(indices.size()) / top_k;
  std::vector<Clique> cliques;
  for (const auto& [experts, count] : seen) cliques.push_back({experts, static_cast<double>(count) / tokens});
  // Ties keep the order of the map: by expert numbers.
  std::stable_sort(cliques.begin(), cliques.end(), [](const Clique& a, const Clique& b) { return a.share > b.share; });
  if (cliques.size() > most) cliques.resize(most);
  return cliques;
}

}  // namespace some
