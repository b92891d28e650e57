// Two-dimensional pictures of points in many dimensions: principal components, and t-SNE. Both are pure functions of
// the points and the settings, whatever the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace some {

// Rows of equal length.
struct Points {
  std::int64_t count = 0, dimensions = 0;
  std::vector<double> values;  // [count * dimensions]
  const double* row(std::int64_t i) const { return values.data() + i * dimensions; }
};

struct Plane {
  std::vector<double> mean;     // [dimensions]
  std::vector<double> axes[2];  // unit vectors; the sign is such that the largest element is positive
  double share[2] = {0, 0};     // of the variance along each
};
struct Point2 {
  double x = 0, y = 0;
};

// The two directions in which the points differ most.
Plane principal_plane(const Points& points);
std::vector<Point2> project(const Points& points, const Plane& plane);

struct TsneSettings {
  double perplexity = 0;  // 0: 30, or a third of the points where there are fewer
  int iterations = 1000;  // the first quarter with exaggeration
  double exaggeration = 12;
  double learning_rate = 0;  // 0: points / exaggeration / 4, at least 50
  std::uint64_t seed = 0;
};
// The settings with their zeros filled in for so many points; bad_input when the perplexity does not fit them.
TsneSettings resolve(const TsneSettings& settings, std::int64_t points);

// Exact t-SNE (van der Maaten and Hinton, 2008) from a small random start: every pair of points in every iteration, so
// for some thousands of points at most.
struct TsneResult {
  std::vector<Point2> points;
  double divergence = 0;  // Kullback-Leibler, nats: how much of the neighbourhoods the picture could not keep
};
constexpr std::int64_t tsne_least_points = 5;
TsneResult tsne(Threads& threads, const Points& points, const TsneSettings& settings);

}  // namespace some
