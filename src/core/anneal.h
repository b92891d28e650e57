// Annealing: a factor that changes over a run.
#pragma once

#include <string>
#include <vector>

namespace some {

enum class AnnealShape { none, linear, cosine, exponential };
const std::vector<std::string>& anneal_shapes();  // the names of the shapes, in the order of the enum

struct Anneal {
  AnnealShape shape = AnnealShape::none;
  double start = 1.0;
  double end = 1.0;
  double at(double progress) const;  // the factor at `progress` in [0, 1] of the run
  // bad_input if start or end is set without a shape, so that it would have no effect.
  void check(const std::string& name) const;
  bool operator==(const Anneal&) const = default;
};

}  // namespace some
