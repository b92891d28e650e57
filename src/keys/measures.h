// Measures of self-organization (spec 6), computed on the CPU from host vectors.
#pragma once

#include <cstdint>
#include <vector>

namespace some {

double gini(std::vector<double> usage);  // 0 when the sum is 0
double entropy_bits(const std::vector<double>& usage);
double effective_experts(const std::vector<double>& usage);   // 2^entropy of the load
double max_over_mean_load(const std::vector<double>& usage);  // max/mean load

struct Clique {
  std::vector<int> experts;  // sorted
  double share = 0;          // of all counted sets
};
// Returns the most frequent sets of experts chosen together, in descending order, at most `most`. indices: [tokens *
// k].
std::vector<Clique> frequent_sets(const std::vector<std::int32_t>& indices, int top_k, std::size_t most);

}  // namespace some
