#include "study/projection.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"

namespace some::study {
namespace {

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Symmetric [n, n] times one vector.
void multiply(Threads& threads, const std::vector<double>& matrix, std::int64_t n, const std::vector<double>& in,
              std::vector<double>& out) {
  parallel_chunks(threads, n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      out[static_cast<std::size_t>(i)] = dot(matrix.data() + i * n, in.data(), n);
  });
}

// What is left of a vector that the ones before it explain is set to zero: points may span fewer dimensions than the
// block.
void orthonormalize(std::vector<std::vector<double>>& block, std::int64_t n) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    for (int pass = 0; pass < 2; ++pass) {  // once more after scaling, so that rounding leaves nothing behind
      const double before = std::sqrt(dot(block[i].data(), block[i].data(), n));
      for (std::size_t j = 0; j < i; ++j) {
        const double part = dot(block[i].data(), block[j].data(), n);
        for (std::int64_t c = 0; c < n; ++c)
          block[i][static_cast<std::size_t>(c)] -= part * block[j][static_cast<std::size_t>(c)];
      }
      const double length = std::sqrt(dot(block[i].data(), block[i].data(), n));
      const bool gone = !(length > 1e-12 * before);
      for (double& value : block[i]) value = gone ? 0.0 : value / length;
    }
  }
}

// The largest eigenvectors of the small symmetric matrix of a block by Jacobi rotations; columns sorted by falling
// eigenvalue.
void rotate_to_eigenvectors(Threads& threads, std::vector<std::vector<double>>& block,
                            const std::vector<double>& matrix, std::int64_t n, std::vector<double>& eigenvalues) {
  const std::size_t size = block.size();
  std::vector<double> image(static_cast<std::size_t>(n)), small(size * size), vectors(size * size, 0.0);
  for (std::size_t j = 0; j < size; ++j) {
    multiply(threads, matrix, n, block[j], image);
    for (std::size_t i = 0; i < size; ++i) small[i * size + j] = dot(block[i].data(), image.data(), n);
    vectors[j * size + j] = 1;
  }
  for (int sweep = 0; sweep < 50; ++sweep) {
    for (std::size_t p = 0; p < size; ++p) {
      for (std::size_t q = p + 1; q < size; ++q) {
        const double off = 0.5 * (small[p * size + q] + small[q * size + p]);
        if (std::abs(off) < 1e-300) continue;
        const double theta = (small[q * size + q] - small[p * size + p]) / (2 * off);
        const double t = (theta >= 0 ? 1.0 : -1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (std::size_t i = 0; i < size; ++i) {
          const double a = small[i * size + p], b = small[i * size + q];
          small[i * size + p] = c * a - s * b;
          small[i * size + q] = s * a + c * b;
        }
        for (std::size_t i = 0; i < size; ++i) {
          const double a = small[p * size + i], b = small[q * size + i];
          small[p * size + i] = c * a - s * b;
          small[q * size + i] = s * a + c * b;
        }
        for (std::size_t i = 0; i < size; ++i) {
          const double a = vectors[i * size + p], b = vectors[i * size + q];
          vectors[i * size + p] = c * a - s * b;
          vectors[i * size + q] = s * a + c * b;
        }
      }
    }
  }
  std::vector<std::size_t> order(size);
  for (std::size_t i = 0; i < size; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return small[a * size + a] > small[b * size + b]; });
  std::vector<std::vector<double>> rotated(size, std::vector<double>(static_cast<std::size_t>(n), 0.0));
  eigenvalues.resize(size);
  for (std::size_t j = 0; j < size; ++j) {
    eigenvalues[j] = small[order[j] * size + order[j]];
    for (std::size_t i = 0; i < size; ++i) {
      const double factor = vectors[i * size + order[j]];
      for (std::int64_t c = 0; c < n; ++c)
        rotated[j][static_cast<std::size_t>(c)] += factor * block[i][static_cast<std::size_t>(c)];
    }
  }
  block = std::move(rotated);
}

}  // namespace

Plane principal_plane(Threads& threads, const Points& points) {
  const std::int64_t n = points.count, d = points.dimensions;
  Plane plane;
  plane.mean.assign(static_cast<std::size_t>(d), 0.0);
  for (auto& axis : plane.axes) axis.assign(static_cast<std::size_t>(d), 0.0);
  if (n == 0) return plane;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j)
      plane.mean[static_cast<std::size_t>(j)] += points.row(i)[j] / static_cast<double>(n);
  }
  // Columns of the centred points, so that an element of the covariance is one dot product in a fixed order.
  std::vector<double> columns(static_cast<std::size_t>(n * d));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j)
      columns[static_cast<std::size_t>(j * n + i)] = points.row(i)[j] - plane.mean[static_cast<std::size_t>(j)];
  }
  std::vector<double> covariance(static_cast<std::size_t>(d * d));
  parallel_for(threads, d, [&](std::int64_t i) {
    for (std::int64_t j = i; j < d; ++j) {
      covariance[static_cast<std::size_t>(i * d + j)] = covariance[static_cast<std::size_t>(j * d + i)] =
          dot(columns.data() + i * n, columns.data() + j * n, n);
    }
  });
  double total = 0;
  for (std::int64_t i = 0; i < d; ++i) total += covariance[static_cast<std::size_t>(i * d + i)];
  if (!(total > 0)) return plane;

  // Subspace iteration with a few spare directions: random keys have many nearly equal variances, and the spare ones
  // keep it converging.
  const std::size_t size = static_cast<std::size_t>(std::min<std::int64_t>(d, 12));
  const RandomStream stream = random_stream(0, "principal plane");
  std::vector<std::vector<double>> block(size, std::vector<double>(static_cast<std::size_t>(d)));
  for (std::size_t i = 0; i < size; ++i) {
    for (std::int64_t j = 0; j < d; ++j)
      block[i][static_cast<std::size_t>(j)] =
          stream.normal(i * static_cast<std::uint64_t>(d) + static_cast<std::uint64_t>(j));
  }
  orthonormalize(block, d);
  std::vector<double> eigenvalues, before;
  std::vector<double> image(static_cast<std::size_t>(d));
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 8; ++i) {
      for (auto& vector : block) {
        multiply(threads, covariance, d, vector, image);
        vector = image;
      }
      orthonormalize(block, d);
    }
    rotate_to_eigenvectors(threads, block, covariance, d, eigenvalues);
    const std::size_t watched = std::min<std::size_t>(2, size);
    double change = 0;
    for (std::size_t i = 0; i < watched && !before.empty(); ++i)
      change = std::max(change, std::abs(eigenvalues[i] - before[i]) / total);
    if (!before.empty() && change < 1e-14) break;
    before = eigenvalues;
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(2, size); ++i) {
    std::vector<double>& axis = block[i];
    std::size_t largest = 0;
    for (std::size_t j = 1; j < axis.size(); ++j) {
      if (std::abs(axis[j]) > std::abs(axis[largest])) largest = j;
    }
    if (axis[largest] < 0) {
      for (double& value : axis) value = -value;
    }
    plane.axes[i] = axis;
    plane.share[i] = std::max(eigenvalues[i], 0.0) / total;
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
    bad_input("--perplexity {}: a map of {} keys needs a number from 1 to below {}", settings.perplexity, points, most);
  }
  if (out.learning_rate == 0) out.learning_rate = std::max(50.0, static_cast<double>(points) / out.exaggeration / 4);
  return out;
}

TsneResult tsne(Threads& threads, const Points& points, const TsneSettings& asked) {
  const std::int64_t n = points.count;
  if (n < tsne_least_points) failed("t-SNE of {} points: it needs at least {}", n, tsne_least_points);
  const TsneSettings settings = resolve(asked, n);
  const auto at = [n](std::int64_t i, std::int64_t j) { return static_cast<std::size_t>(i * n + j); };

  // Joint probabilities: each point's neighbourhood has the wanted perplexity, then both directions are averaged.
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
                            nearest;  // the nearest has weight 1: nothing underflows to an empty sum
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
      if (precision > 1e12) break;  // points that lie on one another cannot be told apart further
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

}  // namespace some::study
