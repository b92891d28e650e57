// A factor that changes over a run.
#pragma once

#include <string>
#include <vector>

namespace some {

enum class AnnealShape { none, linear, cosine, exponential };
const std::vector<std::string>& anneal_shapes();  // their names, in this order

struct Anneal {
  AnnealShape shape = AnnealShape::none;
  double start = 1.0;
  double end = 1.0;
  double at(double progress) const;           // progress in [0, 1]
  void check(const std::string& name) const;  // bad_input where numbers are given that would do nothing
  bool operator==(const Anneal&) const = default;
};

}  // namespace some
