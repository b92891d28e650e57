// Peer pull on the CPU.
#pragma once

#include <utility>
#include <vector>

#include "keys/rules/pull.h"

namespace some {

// Pulls expert e: reads all rows of `from`, writes row e of `to`. sum_f w (K[f] - K[e]) = sum_f w K[f] - (sum_f w)
// K[e].
template <typename Layer>
void pull_peers(const Layer& layer, double factor, std::int64_t e, const double* from, double* to) {
  const PullRule::Plan& plan = layer.plan;
  const std::int64_t experts = layer.experts, d = layer.size;
  std::vector<std::pair<double, const double*>> peers;
  double total = 0.0;
  for (std::int64_t f = 0; f < experts; ++f) {
    const std::int32_t count = layer.together[e * experts + f];
    if (count == 0 || f == e) continue;
    const double weight =
        plan.weight(factor, count, static_cast<double>(layer.usage[e]), static_cast<double>(layer.usage[f]));
    peers.emplace_back(weight, from + f * d);
    total += weight;
  }
  const double* row = from + e * d;
  double* out = to + e * d;
  for (std::int64_t j = 0; j < d; ++j) out[j] = row[j] - total * row[j];
  std::size_t n = 0;
  for (; n + 4 <= peers.size(); n += 4) {  // four at a time: the row is read and written a quarter as often
    const auto [wa, a] = peers[n];
    const auto [wb, b] = peers[n + 1];
    const auto [wc, c] = peers[n + 2];
    const auto [wf, f] = peers[n + 3];
    for (std::int64_t j = 0; j < d; ++j) out[j] += (wa * a[j] + wb * b[j]) + (wc * c[j] + wf * f[j]);
  }
  for (; n < peers.size(); ++n) {
    const auto [weight, peer] = peers[n];
    for (std::int64_t j = 0; j < d; ++j) out[j] += weight * peer[j];
  }
}

}  // namespace some
