// Kneser-Ney counts without a limit, written as plainly as possible: the reference implementation of a memory's
// contexts (spec 8), and the counting baseline. Every context of a position has its own table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace some {

class KneserNey {
 public:
  KneserNey(int longest, int vocabulary) : vocabulary_(vocabulary), followers_(static_cast<std::size_t>(longest) + 1) {}

  // Returns the estimate of each order for one token after `before`.
  std::vector<double> estimates(std::span<const std::int32_t> before, std::int32_t target) const {
    std::vector<double> out;
    double p = 1.0 / vocabulary_;
    for (std::size_t k = 0; k < followers_.size(); ++k) {
      if (const auto found = k <= before.size() ? followers_[k].find(context(before, k)) : followers_[k].end();
          found != followers_[k].end()) {
        const std::vector<double> discount = discounts(k);
        double total = 0, back = 0, own = 0;
        for (const auto& [token, count] : found->second) {
          const double gone = discount[static_cast<std::size_t>(std::min(count, 3) - 1)];
          total += count;
          back += gone;
          if (token == target) own = count - gone;
        }
        p = own / total + back / total * p;
      }
      out.push_back(p);
    }
    return out;
  }

  void learn(std::span<const std::int32_t> before, std::int32_t target) {
    // A token is counted in the next shorter context only if it is new in the longer one.
    for (std::size_t k = std::min(before.size(), followers_.size() - 1) + 1; k-- > 0;) {
      if (++followers_[k][context(before, k)][target] > 1) break;
    }
  }

 private:
  using Tokens = std::vector<std::int32_t>;
  static Tokens context(std::span<const std::int32_t> before, std::size_t k) {
    return {before.end() - static_cast<std::ptrdiff_t>(k), before.end()};
  }
  std::vector<double> discounts(std::size_t k) const {
    std::vector<double> n{4.0, 1.0, 0.5, 0.35};
    for (const auto& [tokens, counts] : followers_[k]) {
      for (const auto& [token, count] : counts) {
        if (count <= 4) ++n[static_cast<std::size_t>(count - 1)];
      }
    }
    const double y = n[0] / (n[0] + 2 * n[1]);
    return {std::clamp(1 - 2 * y * n[1] / n[0], 0.05, 0.99), std::clamp(2 - 3 * y * n[2] / n[1], 0.1, 1.9),
            std::clamp(3 - 4 * y * n[3] / n[2], 0.15, 2.8)};
  }

  int vocabulary_;
  std::vector<std::map<Tokens, std::map<std::int32_t, int>>> followers_;
};

}  // namespace some
