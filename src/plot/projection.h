// Projections of high-dimensional points to two dimensions: principal components (PCA) and t-SNE. Both are
// deterministic functions of the points and the settings, independent of the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace some {

// Row-major matrix, one point per row.
struct Points {
  std::int64_t count = 0, dimensions = 0;
  std::vector<double> values;  // [count * dimensions]
  const double* row(std::int64_t i) const { return values.data() + i * dimensions; }
};

struct Plane {
  std::vector<double> mean;     // [dimensions]
  std::vector<double> axes[2];  // unit vectors; the element of largest magnitude is positive
  double share[2] = {0, 0};     // fraction of the variance along each axis
};
struct Point2 {
  double x = 0, y = 0;
};

// Returns the first two principal components.
Plane principal_plane(const Points& points);
std::vector<Point2> project(const Points& points, const Plane& plane);

struct TsneSettings {
  double perplexity = 0;  // 0: 30, or about a third of the number of points if smaller
  int iterations = 1000;  // the first quarter uses exaggeration
  double exaggeration = 12;
  double learning_rate = 0;  // 0: points / exaggeration / 4, at least 50
  std::uint64_t seed = 0;
};
// Returns the settings with zeros replaced by the defaults for this number of points. Throws (bad_input) if the
// perplexity does not fit it.
TsneSettings resolve(const TsneSettings& settings, std::int64_t points);

// Exact t-SNE (van der Maaten and Hinton, 2008) from a small random initialization. Every iteration visits all pairs,
// which limits it to some thousands of points.
struct TsneResult {
  std::vector<Point2> points;
  double divergence = 0;  // Kullback-Leibler divergence in nats: how much neighborhood structure the map loses
};
constexpr std::int64_t tsne_least_points = 5;
TsneResult tsne(Threads& threads, const Points& points, const TsneSettings& settings);

}  // namespace some
