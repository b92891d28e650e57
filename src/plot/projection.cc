#include "plot/projection.h"

// Eigen uses one thread: the partition of a product, and thus its rounding, must not depend on the number of threads.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace some {

Plane principal_plane(const Points& points) {
  const std::int64_t n = points.count, d = points.dimensions;
  Plane plane;
  plane.mean.assign(static_cast<std::size_t>(d), 0.0);
  for (auto& axis : plane.axes) axis.assign(static_cast<std::size_t>(d), 0.0);
  if (n == 0) return plane;
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Rows centred = Eigen::Map<const Rows>(points.values.data(), n, d);
  const Eigen::RowVectorXd mean = centred.colwise().mean();
  Eigen::RowVectorXd::Map(plane.mean.data(), d) = mean;
  centred.rowwise() -= mean;
  // Uses the Gram matrix if there are fewer rows than columns: it has the same nonzero eigenvalues as the scatter
  // matrix.
  const bool by_rows = n < d;
  const Eigen::MatrixXd products =
      by_rows ? Eigen::MatrixXd(centred * centred.transpose()) : Eigen::MatrixXd(centred.transpose() * centred);
  const double total = products.trace();
  if (!(total > 0)) return plane;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(products);  // eigenvalues in increasing order
  for (std::size_t i = 0; i < 2 && static_cast<std::int64_t>(i) < products.rows(); ++i) {
    const Eigen::Index place = products.rows() - 1 - static_cast<Eigen::Index>(i);
    const double value = solver.eigenvalues()(place);
    if (!(value > 1e-14 * total)) break;  // the points are collinear
    Eigen::VectorXd axis = solver.eigenvectors().col(place);
    if (by_rows) axis = (centred.transpose() * axis).normalized();
    Eigen::Index largest = 0;
    axis.cwiseAbs().maxCoeff(&largest);
    if (axis(largest) < 0) axis = -axis;
    Eigen::VectorXd::Map(plane.axes[i].data(), d) = axis;
    plane.share[i] = value / total;
  }
  return plane;
}

std::vector<Point2> project(const Points& points, const Plane& plane) {
  std::vector<Point2> out(static_cast<std::size_t>(points.count));
  for (std::int64_t i = 0; i < points.count; ++i) {
    Point2& point = out[static_cast<std::size_t>(i)];
    for (std::int64_t j = 0; j < points.dimensions; ++j) {
      const double centred = points.row(i)[j] - plane.mean[static_cast<std::size_t>(j)];
      point.x += centred * plane.axes[0][static_cast<std::size_t>(j)];
      point.y += centred * plane.axes[1][static_cast<std::size_t>(j)];
    }
  }
  return out;
}

TsneSettings resolve(const TsneSettings& settings, std::int64_t points) {
  TsneSettings out = settings;
  const double most = static_cast<double>(points - 1);
  if (out.perplexity == 0) out.perplexity = std::min(30.0, std::max(2.0, std::floor(most / 3)));
  if (!(out.perplexity >= 1 && out.perplexity < most)) {
    bad_input(Code::option_invalid, "{} {}: for a map of {} keys, must be from 1 to below {}", "--perplexity",
              settings.perplexity, points, most);
  }
  if (out.learning_rate == 0) out.learning_rate = std::max(50.0, static_cast<double>(points) / out.exaggeration / 4);
  return out;
}

TsneResult tsne(Threads& threads, const Points& points, const TsneSettings& asked) {
  const std::int64_t n = points.count;
  if (n < tsne_least_points)
    failed(Code::internal, "t-SNE of {} points: at least {} are required", n, tsne_least_points);
  const TsneSettings settings = resolve(asked, n);
  const auto at = [n](std::int64_t i, std::int64_t j) { return static_cast<std::size_t>(i * n + j); };

  // Joint probabilities: calibrates each point's conditional distribution to the perplexity, then symmetrizes.
  std::vector<double> conditional(static_cast<std::size_t>(n * n)), joint(static_cast<std::size_t>(n * n));
  parallel_for(threads, n, [&](std::int64_t i) {
    std::vector<double> square(static_cast<std::size_t>(n));
    double nearest = INFINITY;
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < points.dimensions; ++c)
        sum += (points.row(i)[c] - points.row(j)[c]) * (points.row(i)[c] - points.row(j)[c]);
      square[static_cast<std::size_t>(j)] = sum;
      if (j != i) nearest = std::min(nearest, sum);
    }
    double low = 0, high = INFINITY, precision = 1;
    for (int attempt = 0; attempt < 200; ++attempt) {
      double sum = 0, weighted = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        if (j == i) continue;
        const double away = square[static_cast<std::size_t>(j)] -
                            nearest;  // the nearest has weight 1, so that the sum cannot underflow to 0
        const double weight = std::exp(-precision * away);
        sum += weight;
        weighted += weight * away;
      }
      const double entropy = std::log(sum) + precision * weighted / sum;
      if (std::abs(entropy - std::log(settings.perplexity)) < 1e-10) break;
      if (entropy > std::log(settings.perplexity))
        low = precision;
      else
        high = precision;
      precision = std::isinf(high) ? precision * 2 : 0.5 * (low + high);
      if (precision > 1e12) break;  // coincident points cannot be separated further
    }
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const double weight = j == i ? 0.0 : std::exp(-precision * (square[static_cast<std::size_t>(j)] - nearest));
      conditional[at(i, j)] = weight;
      sum += weight;
    }
    for (std::int64_t j = 0; j < n; ++j) conditional[at(i, j)] /= sum;
  });
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j)
      joint[at(i, j)] =
          std::max((conditional[at(i, j)] + conditional[at(j, i)]) / (2.0 * static_cast<double>(n)), 1e-15);
  }

  const RandomStream stream = random_stream(settings.seed, "t-sne");
  std::vector<Point2> y(static_cast<std::size_t>(n)), step(y.size()), gain(y.size(), Point2{1, 1}), gradient(y.size());
  for (std::int64_t i = 0; i < n; ++i) {
    y[static_cast<std::size_t>(i)] = {1e-4 * stream.normal(static_cast<std::uint64_t>(2 * i)),
                                      1e-4 * stream.normal(static_cast<std::uint64_t>(2 * i + 1))};
  }
  std::vector<double> row_sums(y.size());
  std::vector<double> kernel(static_cast<std::size_t>(n * n));
  const auto fill_kernel = [&] {
    parallel_chunks(threads, n, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          const double dx = y[static_cast<std::size_t>(i)].x - y[static_cast<std::size_t>(j)].x,
                       dy = y[static_cast<std::size_t>(i)].y - y[static_cast<std::size_t>(j)].y;
          const double value = i == j ? 0.0 : 1.0 / (1.0 + dx * dx + dy * dy);
          kernel[at(i, j)] = value;
          sum += value;
        }
        row_sums[static_cast<std::size_t>(i)] = sum;
      }
    });
    double total = 0;
    for (const double sum : row_sums) total += sum;
    return total;
  };
  const auto move = [&](double slope, double momentum, double& gain_value, double& velocity) {
    gain_value = (slope > 0) != (velocity > 0) ? gain_value + 0.2 : std::max(gain_value * 0.8, 0.01);
    velocity = momentum * velocity - settings.learning_rate * gain_value * slope;
  };
  for (int iteration = 0; iteration < settings.iterations; ++iteration) {
    const bool early = iteration < settings.iterations / 4;
    const double exaggeration = early ? settings.exaggeration : 1.0, momentum = early ? 0.5 : 0.8;
    const double total = fill_kernel();
    parallel_chunks(threads, n, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        Point2 sum;
        for (std::int64_t j = 0; j < n; ++j) {
          const double q = kernel[at(i, j)];
          const double force = 4.0 * (exaggeration * joint[at(i, j)] - q / total) * q;
          sum.x += force * (y[static_cast<std::size_t>(i)].x - y[static_cast<std::size_t>(j)].x);
          sum.y += force * (y[static_cast<std::size_t>(i)].y - y[static_cast<std::size_t>(j)].y);
        }
        gradient[static_cast<std::size_t>(i)] = sum;
      }
    });
    Point2 mean;
    for (std::size_t i = 0; i < y.size(); ++i) {
      move(gradient[i].x, momentum, gain[i].x, step[i].x);
      move(gradient[i].y, momentum, gain[i].y, step[i].y);
      y[i].x += step[i].x;
      y[i].y += step[i].y;
      mean.x += y[i].x / static_cast<double>(n);
      mean.y += y[i].y / static_cast<double>(n);
    }
    for (Point2& point : y) point = {point.x - mean.x, point.y - mean.y};
  }
  TsneResult result;
  const double total = fill_kernel();
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      if (i != j)
        result.divergence += joint[at(i, j)] * std::log(joint[at(i, j)] / std::max(kernel[at(i, j)] / total, 1e-15));
    }
  }
  result.points = std::move(y);
  return result;
}

}  // namespace some
