#include "plot/projection.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace some {
namespace {

Threads few(3);

// Groups of points around distant centers.
Points clusters(int groups, int each, int dimensions, double spread) {
  const RandomStream stream = random_stream(3, "test clusters");
  Points points{groups * each, dimensions, {}};
  std::uint64_t n = 0;
  for (int g = 0; g < groups; ++g) {
    for (int i = 0; i < each; ++i) {
      for (int j = 0; j < dimensions; ++j)
        points.values.push_back((j % groups == g ? 1.0 : 0.0) + spread * stream.normal(n++));
    }
  }
  return points;
}

double distance(const Point2& a, const Point2& b) { return std::hypot(a.x - b.x, a.y - b.y); }

TEST(PrincipalPlane, FindsTheTwoDirectionsOfLargestVariance) {
  // Variances 9, 4, 1 along known orthogonal directions of 6 dimensions.
  const RandomStream stream = random_stream(1, "test plane");
  const double r = std::sqrt(0.5);
  const double axes[3][6] = {{r, r, 0, 0, 0, 0}, {0, 0, r, -r, 0, 0}, {0, 0, 0, 0, 1, 0}};
  const double sizes[3] = {3, 2, 1};
  Points points{4000, 6, std::vector<double>(24000, 0.0)};
  for (int i = 0; i < 4000; ++i) {
    for (int a = 0; a < 3; ++a) {
      const double along = sizes[a] * stream.normal(static_cast<std::uint64_t>(3 * i + a));
      for (int j = 0; j < 6; ++j) points.values[static_cast<std::size_t>(6 * i + j)] += 5 + along * axes[a][j];
    }
  }
  const Plane plane = principal_plane(points);
  for (int a = 0; a < 2; ++a) {
    double along = 0, length = 0;
    for (std::size_t j = 0; j < 6; ++j) {
      along += plane.axes[a][j] * axes[a][j];
      length += plane.axes[a][j] * plane.axes[a][j];
    }
    EXPECT_NEAR(std::abs(along), 1, 0.01);
    EXPECT_NEAR(length, 1, 1e-9);
  }
  EXPECT_NEAR(plane.share[0], 9.0 / 14, 0.03);
  EXPECT_NEAR(plane.share[1], 4.0 / 14, 0.03);
  // Projected variances are the shares of the total.
  const std::vector<Point2> flat = project(points, plane);
  double x = 0, mean = 0;
  for (const Point2& p : flat) {
    x += p.x * p.x;
    mean += p.x;
  }
  EXPECT_NEAR(mean / 4000, 0, 1e-9);
  EXPECT_NEAR(x / 4000, 9, 0.6);
}

TEST(PrincipalPlane, TakesPointsThatDoNotDiffer) {
  const Plane same = principal_plane({4, 3, std::vector<double>(12, 2.5)});
  EXPECT_EQ(same.share[0], 0);
  const Plane one = principal_plane({3, 1, {0, 1, 5}});
  EXPECT_NEAR(one.share[0], 1, 1e-12);
  EXPECT_EQ(one.share[1], 0);
  for (const Point2& p : project({3, 1, {0, 1, 5}}, one)) EXPECT_TRUE(std::isfinite(p.x) && std::isfinite(p.y));
}

TEST(Tsne, KeepsSeparatedClustersApart) {
  const int groups = 3, each = 15;
  const Points points = clusters(groups, each, 12, 0.05);
  const TsneResult result = tsne(few, points, {});
  ASSERT_EQ(result.points.size(), 45u);
  // Every point's nearest neighbors on the map belong to its group.
  for (int i = 0; i < groups * each; ++i) {
    double own = 0, other = INFINITY;
    for (int j = 0; j < groups * each; ++j) {
      const double away =
          distance(result.points[static_cast<std::size_t>(i)], result.points[static_cast<std::size_t>(j)]);
      if (i / each == j / each)
        own = std::max(own, away);
      else
        other = std::min(other, away);
    }
    EXPECT_LT(own, other) << "point " << i;
  }
  EXPECT_GT(result.divergence, 0);
}

TEST(Tsne, IsAPureFunctionOfPointsAndSeed) {
  const Points points = clusters(2, 20, 8, 0.3);
  TsneSettings settings;
  settings.iterations = 200;
  Threads alone(1);
  const TsneResult one = tsne(alone, points, settings), three = tsne(few, points, settings);
  settings.seed = 1;
  const TsneResult other = tsne(few, points, settings);
  bool differs = false;
  for (std::size_t i = 0; i < one.points.size(); ++i) {
    EXPECT_EQ(one.points[i].x, three.points[i].x);
    EXPECT_EQ(one.points[i].y, three.points[i].y);
    differs = differs || one.points[i].x != other.points[i].x;
  }
  EXPECT_TRUE(differs);
}

TEST(Tsne, TakesPointsOnOneAnother) {
  Points points{8, 3, std::vector<double>(24, 1.0)};
  points.values[0] = 2;
  for (const Point2& p : tsne(few, points, {}).points) EXPECT_TRUE(std::isfinite(p.x) && std::isfinite(p.y));
}

TEST(Tsne, RefusesAPerplexityThatDoesNotFit) {
  TsneSettings settings;
  settings.perplexity = 40;
  EXPECT_THROW(resolve(settings, 32), Error);
  settings.perplexity = 0.5;
  EXPECT_THROW(resolve(settings, 32), Error);
  EXPECT_EQ(resolve({}, 32).perplexity, 10);
  EXPECT_EQ(resolve({}, 1024).perplexity, 30);
}

}  // namespace
}  // namespace some
