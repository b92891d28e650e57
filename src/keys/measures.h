// Measures of self-organization (spec 6). Plain CPU code on vectors that were read back.
#pragma once

#include <cstdint>
#include <vector>

namespace some {

double gini(std::vector<double> usage);  // 0 when the sum is 0
double entropy_bits(const std::vector<double>& usage);
double effective_experts(const std::vector<double>& usage);  // 2^entropy
double load_over_fair(const std::vector<double>& usage);     // largest share times E

struct Clique {
  std::vector<int> experts;  // sorted
  double share = 0;          // of all choices sets seen
};
// The sets of experts chosen together, most frequent first. indices: [tokens * k].
std::vector<Clique> frequent_sets(const std::vector<std::int32_t>& indices, int top_k, std::size_t most);

}  // namespace some
