// The two optional auxiliary losses on routing (spec 5): load balancing, and the gate entropy band.
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/support.h"
#include "ops/route.h"

namespace some::cpu {
namespace {

constexpr std::int64_t row_grain = 128;

bool takes_part(const Tensor* targets, std::int64_t t) {
  return targets == nullptr || targets->data<std::int32_t>()[t] >= 0;
}

std::int64_t count_positions(const Tensor* targets, std::int64_t rows) {
  std::int64_t count = 0;
  for (std::int64_t t = 0; t < rows; ++t) count += takes_part(targets, t) ? 1 : 0;
  return count;
}

template <typename T>
void balance(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor& temperature, const Tensor& indices,
             const Tensor* targets, double coefficient, Tensor& dquery, Tensor& loss) {
  const std::int64_t rows = query.dim(0), d = query.dim(1), experts = keys.dim(0), k = indices.dim(1);
  const std::int64_t positions = count_positions(targets, rows);
  if (positions == 0) return;
  // slope[e] = d loss / d p_e = coefficient * E * f_e
  const std::int32_t* chosen = indices.data<std::int32_t>();
  std::vector<T> slope(static_cast<std::size_t>(experts), T(0));
  for (std::int64_t t = 0; t < rows; ++t) {
    if (!takes_part(targets, t)) continue;
    for (std::int64_t i = 0; i < k; ++i) slope[static_cast<std::size_t>(chosen[t * k + i])] += T(1);
  }
  const double share = coefficient * static_cast<double>(experts) / static_cast<double>(positions * k);
  for (T& value : slope) value = static_cast<T>(value * share);

  const T inverse = T(1) / temperature.data<T>()[0];
  const T per_position = T(1) / static_cast<T>(positions);
  const T* queries = query.data<T>();
  T* gradient = dquery.data<T>();
  std::vector<double> sums(static_cast<std::size_t>((rows + row_grain - 1) / row_grain));
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    T* scores = thread_buffer<T>(0, (end - begin) * experts);
    gemm_serial(Product<T>{false, true, end - begin, experts, d, inverse, queries + begin * d, d, keys.data<T>(), d,
                           T(0), scores, experts});
    double sum = 0;
    for (std::int64_t t = begin; t < end; ++t) {
      T* p = scores + (t - begin) * experts;
      if (!takes_part(targets, t)) {
        std::fill_n(p, experts, T(0));
        continue;
      }
      softmax(p, experts);
      const T mean = dot(p, slope.data(), experts);  // this position's part of the loss
      sum += static_cast<double>(mean);
      for (std::int64_t e = 0; e < experts; ++e) {
        p[e] *= (slope[static_cast<std::size_t>(e)] - mean) * per_position * inverse;
      }
    }
    sums[static_cast<std::size_t>(begin / row_grain)] = sum;
    gemm_serial(Product<T>{false, false, end - begin, d, experts, T(1), scores, experts, keys.data<T>(), d, T(1),
                           gradient + begin * d, d});
  });
  loss.data<T>()[0] += static_cast<T>(std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(positions));
}

template <typename T>
void entropy_band(Context& ctx, const Tensor& gates, const Tensor* targets, double low, double high, double coefficient,
                  Tensor& dgates, Tensor& loss) {
  const std::int64_t rows = gates.dim(0), k = gates.dim(1), positions = count_positions(targets, rows);
  if (positions == 0) return;
  const T* gate = gates.data<T>();
  // A gate may round to 0, where g log g is 0; the lower bound keeps its slope finite.
  const auto logarithm = [](T value) { return std::log(std::max(value, static_cast<T>(1e-30))); };
  std::vector<double> sums(static_cast<std::size_t>((rows + row_grain - 1) / row_grain));
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t t = begin; t < end; ++t) {
      if (!takes_part(targets, t)) continue;
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i) sum -= static_cast<double>(gate[i] * logarithm(gate[i]));
    }
    sums[static_cast<std::size_t>(begin / row_grain)] = sum;
  });
  const double mean = std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(positions);
  const double distance = mean < low ? mean - low : mean > high ? mean - high : 0.0;
  loss.data<T>()[0] += static_cast<T>(coefficient * distance * distance);
  const T slope = static_cast<T>(2.0 * coefficient * distance / static_cast<double>(positions));
  if (slope == T(0)) return;
  T* gradient = dgates.data<T>();
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (!takes_part(targets, t)) continue;
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i) gradient[i] -= slope * (logarithm(gate[i]) + T(1));
    }
  });
}

}  // namespace

void balance_loss(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor& temperature,
                  const Tensor& indices, const Tensor* targets, double coefficient, Tensor& dquery, Tensor& loss) {
  with_precision(ctx, [&](auto zero) {
    balance<decltype(zero)>(ctx, query, keys, temperature, indices, targets, coefficient, dquery, loss);
  });
}

void entropy_band_loss(Context& ctx, const Tensor& gates, const Tensor* targets, double low, double high,
                       double coefficient, Tensor& dgates, Tensor& loss) {
  with_precision(
      ctx, [&](auto zero) { entropy_band<decltype(zero)>(ctx, gates, targets, low, high, coefficient, dgates, loss); });
}

}  // namespace some::cpu
