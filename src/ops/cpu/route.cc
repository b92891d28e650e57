#include "ops/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/support.h"
#include "ops/elementwise.h"
#include "ops/hash_choice.h"

namespace some::cpu {
namespace {

constexpr double shortest = 1e-12;  // spec 3.2
constexpr std::int64_t row_grain = 64;

template <typename T>
void make_queries(Context& ctx, const Tensor& raw, const Tensor* previous, double ground, Tensor& query,
                  Tensor& norms) {
  const std::int64_t rows = raw.dim(0), d = raw.dim(1);
  const T* in = raw.data<T>();
  const T* below = previous != nullptr && ground > 0 ? previous->data<T>() : nullptr;
  T* out = query.data<T>();
  T* lengths = norms.data<T>();
  const auto normalize = [d](T* row) {
    const T length = std::max(std::sqrt(dot(row, row, d)), static_cast<T>(shortest));
    const T inverse = T(1) / length;
    for (std::int64_t i = 0; i < d; ++i) row[i] *= inverse;
    return length;
  };
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* q = out + row * d;
      std::copy_n(in + row * d, d, q);
      lengths[2 * row] = normalize(q);
      lengths[2 * row + 1] = T(1);
      if (below != nullptr) {
        add_scaled(static_cast<T>(ground), below + row * d, q, d);
        lengths[2 * row + 1] = normalize(q);
      }
    }
  });
}

// Computes the gradient through the normalization n = u/|u|: (g - n (n.g)) / |u|; where |u| was raised to 1e-12 the
// length was a constant. Without grounding the outer normalization is skipped: its length is 1 and its n is that of the
// inner one, which removes the same component.
template <typename T>
void query_gradient(Context& ctx, const Tensor& dquery, const Tensor& raw, const Tensor& query, const Tensor& norms,
                    double ground, Tensor& draw, Tensor* dprevious) {
  const std::int64_t rows = raw.dim(0), d = raw.dim(1);
  const T* gradient = dquery.data<T>();
  const T* in = raw.data<T>();
  const T* out = query.data<T>();
  const T* lengths = norms.data<T>();
  T* result = draw.data<T>();
  T* below = dprevious != nullptr ? dprevious->data<T>() : nullptr;
  const auto project = [d](const T* direction, T scale, T length, T* g) {
    const T along = length > static_cast<T>(shortest) ? dot(direction, g, d) * scale * scale : T(0);
    const T inverse = T(1) / length;
    for (std::int64_t i = 0; i < d; ++i) g[i] = (g[i] - along * direction[i]) * inverse;
  };
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* g = result + row * d;
      if (g != gradient + row * d) std::copy_n(gradient + row * d, d, g);
      const T first = lengths[2 * row], second = lengths[2 * row + 1];
      if (ground > 0) {
        project(out + row * d, T(1), second, g);
        if (below != nullptr) add_scaled(static_cast<T>(ground), g, below + row * d, d);
      }
      project(in + row * d, T(1) / first, first, g);
    }
  });
}

// Finds the k largest of scores[0..experts-1] (plus bias, if not null), best first, ties by index. NaN counts as the
// lowest score, so that the indices stay valid until the loss is found to be NaN.
template <typename T>
void select_best(const T* scores, const T* bias, int experts, int k, std::int32_t* indices, T* best) {
  constexpr int few = 16;
  const auto rank = [&](std::int64_t e) {
    const T value = bias != nullptr ? scores[e] + bias[e] : scores[e];
    return std::isnan(value) ? -std::numeric_limits<T>::infinity() : value;
  };
  if (k <= few) {
    T kept[few];
    int count = 0;
    for (int e = 0; e < experts; ++e) {
      const T score = rank(e);
      if (count == k && !(score > kept[k - 1])) continue;
      int place = count < k ? count++ : k - 1;
      for (; place > 0 && score > kept[place - 1]; --place) {
        kept[place] = kept[place - 1];
        indices[place] = indices[place - 1];
      }
      kept[place] = score;
      indices[place] = e;
    }
  } else {
    std::int32_t* order = thread_buffer<std::int32_t>(1, experts);
    std::iota(order, order + experts, 0);
    std::partial_sort(order, order + k, order + experts, [&](std::int32_t a, std::int32_t b) {
      const T left = rank(a), right = rank(b);
      return left != right ? left > right : a < b;
    });
    std::copy_n(order, k, indices);
  }
  for (int i = 0; i < k; ++i) best[i] = scores[indices[i]];
}

template <typename T>
void choose(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias, const Tensor& temperature,
            bool choice_given, Routing& routing) {
  const std::int64_t rows = query.dim(0), d = query.dim(1), experts = keys.dim(0), k = routing.indices.dim(1);
  if (k > experts) failed(Code::index_out_of_range, "cannot choose {} of {} experts", k, experts);
  const T* queries = query.data<T>();
  const T* address = keys.data<T>();
  const T* favour = bias != nullptr ? bias->data<T>() : nullptr;
  const T inverse = T(1) / temperature.data<T>()[0];
  std::int32_t* indices = routing.indices.data<std::int32_t>();
  T* scores = routing.scores.data<T>();
  T* gates = routing.gates.data<T>();
  // Rows scored at a time: their scores stay below 64 MiB however many experts there are.
  const std::int64_t grain = experts <= 65536 ? 256 : std::max<std::int64_t>(16, (std::int64_t{1} << 24) / experts);
  parallel_chunks(*ctx.threads, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    T* all = nullptr;
    if (!choice_given) {
      all = thread_buffer<T>(0, (end - begin) * experts);
      gemm_serial_for(ctx, Product<T>{false, true, end - begin, experts, d, T(1), queries + begin * d, d, address, d,
                                      T(0), all, experts});
    }
    for (std::int64_t row = begin; row < end; ++row) {
      if (choice_given) {
        for (std::int64_t i = 0; i < k; ++i) {
          scores[row * k + i] = dot(queries + row * d, address + indices[row * k + i] * d, d);
        }
      } else {
        select_best(all + (row - begin) * experts, favour, static_cast<int>(experts), static_cast<int>(k),
                    indices + row * k, scores + row * k);
      }
      for (std::int64_t i = 0; i < k; ++i) gates[row * k + i] = scores[row * k + i] * inverse;
      softmax(gates + row * k, k);
    }
  });
}

// Writes the mean key of every partition to means [count, d], and the mean bias to favours, in double precision rounded
// once.
template <typename T>
void partition_means(Context& ctx, const Tensor& keys, const T* bias, int count, T* means, T* favours) {
  const std::int64_t experts = keys.dim(0), d = keys.dim(1);
  parallel_chunks(*ctx.threads, count, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> sums(static_cast<std::size_t>(d));
    for (std::int64_t p = first; p < last; ++p) {
      const std::int64_t begin = partition_begin(p, experts, count), end = partition_begin(p + 1, experts, count);
      const double share = 1.0 / static_cast<double>(end - begin);
      std::fill(sums.begin(), sums.end(), 0.0);
      double favour = 0;
      for (std::int64_t e = begin; e < end; ++e) {
        const T* key = keys.data<T>() + e * d;
        for (std::int64_t j = 0; j < d; ++j) sums[static_cast<std::size_t>(j)] += static_cast<double>(key[j]);
        if (bias != nullptr && bias[e] > static_cast<T>(never_chosen)) favour += static_cast<double>(bias[e]);
      }
      for (std::int64_t j = 0; j < d; ++j) means[p * d + j] = static_cast<T>(sums[static_cast<std::size_t>(j)] * share);
      favours[p] = static_cast<T>(favour * share);
    }
  });
}

// Scores the partitions of all rows, then the keys of the searched ones: rows of a chunk that search the same partition
// are scored together. Every score is one dot product with a fixed order of additions (row_gemm), so that a row's
// choice does not depend on the others.
template <typename T>
void choose_in_partitions(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias,
                          const Tensor& temperature, const KeyPartitions& partitions, Routing& routing) {
  const std::int64_t rows = query.dim(0), d = query.dim(1), experts = keys.dim(0), k = routing.indices.dim(1),
                     count = partitions.count, probe = std::min(partitions.probe, partitions.count),
                     widest = (experts + count - 1) / count;
  if (probe * (experts / count) < k)
    failed(Code::index_out_of_range, "cannot choose {} experts in {} of {} partitions of {}", k, probe, count, experts);
  const ArenaScope scope(*ctx.arena);
  Tensor means = ctx.scratch({count, d}, keys.dtype()), favours = ctx.scratch({count}, keys.dtype());
  const T* favour = bias != nullptr ? bias->data<T>() : nullptr;
  partition_means(ctx, keys, favour, partitions.count, means.data<T>(), favours.data<T>());
  const T* queries = query.data<T>();
  const T inverse = T(1) / temperature.data<T>()[0];
  std::int32_t* indices = routing.indices.data<std::int32_t>();
  T* scores = routing.scores.data<T>();
  T* gates = routing.gates.data<T>();
  constexpr std::int64_t max_scores = 1 << 22;  // per chunk
  const std::int64_t grain = std::clamp<std::int64_t>(max_scores / (probe * widest + count), 1, 256);
  parallel_chunks(*ctx.threads, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t here = end - begin, found = probe * widest;
    std::vector<T> all(static_cast<std::size_t>(here * count)), best(static_cast<std::size_t>(probe)),
        candidates(static_cast<std::size_t>(here * found)), chosen_queries, products,
        candidate_bias(static_cast<std::size_t>(favour != nullptr ? found : 0));
    std::vector<std::int32_t> searched(static_cast<std::size_t>(here * probe)), places(static_cast<std::size_t>(k));
    row_gemm_serial(Product<T>{false, true, here, count, d, T(1), queries + begin * d, d, means.data<T>(), d, T(0),
                               all.data(), count});
    std::vector<std::pair<std::int32_t, std::int64_t>> visits;  // partition, place in `searched`
    for (std::int64_t row = 0; row < here; ++row) {
      std::int32_t* own = searched.data() + row * probe;
      select_best(all.data() + row * count, favour != nullptr ? favours.data<T>() : nullptr, static_cast<int>(count),
                  static_cast<int>(probe), own, best.data());
      std::sort(own, own + probe);  // in the order of the experts, which decides between equal scores
      for (std::int64_t i = 0; i < probe; ++i) visits.emplace_back(own[i], row * probe + i);
    }
    std::sort(visits.begin(), visits.end());
    for (std::size_t first = 0, last = 0; first < visits.size(); first = last) {
      const std::int64_t partition = visits[first].first, from = partition_begin(partition, experts, count),
                         width = partition_begin(partition + 1, experts, count) - from;
      while (last < visits.size() && visits[last].first == partition) ++last;
      const auto together = static_cast<std::int64_t>(last - first);
      chosen_queries.resize(static_cast<std::size_t>(together * d));
      products.resize(static_cast<std::size_t>(together * width));
      for (std::int64_t i = 0; i < together; ++i) {
        const std::int64_t row = begin + visits[first + static_cast<std::size_t>(i)].second / probe;
        std::copy_n(queries + row * d, d, chosen_queries.data() + i * d);
      }
      row_gemm_serial(Product<T>{false, true, together, width, d, T(1), chosen_queries.data(), d,
                                 keys.data<T>() + from * d, d, T(0), products.data(), width});
      for (std::int64_t i = 0; i < together; ++i)
        std::copy_n(products.data() + i * width, width,
                    candidates.data() + visits[first + static_cast<std::size_t>(i)].second * widest);
    }
    std::vector<std::int32_t> experts_of(static_cast<std::size_t>(found));
    for (std::int64_t row = 0; row < here; ++row) {
      // Moves the candidates of all searched partitions together, without the gaps after narrow ones.
      T* line = candidates.data() + row * found;
      std::int64_t n = 0;
      for (std::int64_t i = 0; i < probe; ++i) {
        const std::int64_t partition = searched[static_cast<std::size_t>(row * probe + i)],
                           from = partition_begin(partition, experts, count),
                           to = partition_begin(partition + 1, experts, count);
        for (std::int64_t e = from; e < to; ++e, ++n) {
          line[n] = line[i * widest + e - from];
          experts_of[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(e);
          if (favour != nullptr) candidate_bias[static_cast<std::size_t>(n)] = favour[e];
        }
      }
      const std::int64_t at = (begin + row) * k;
      select_best(line, favour != nullptr ? candidate_bias.data() : nullptr, static_cast<int>(n), static_cast<int>(k),
                  places.data(), scores + at);
      for (std::int64_t i = 0; i < k; ++i) {
        indices[at + i] = experts_of[static_cast<std::size_t>(places[static_cast<std::size_t>(i)])];
        gates[at + i] = scores[at + i] * inverse;
      }
      softmax(gates + at, k);
    }
  });
}

// Computes the gradient of gates = softmax(s/tau): ds_i = gate_i (dgate_i - sum_j gate_j dgate_j) / tau and dtau =
// -sum_i ds_i s_i / tau.
template <typename T>
void route_gradient(Context& ctx, const Tensor& dgates, const Routing& routing, const Tensor& keys,
                    const Tensor& temperature, Tensor& dquery, Tensor* dlog_temperature) {
  const std::int64_t rows = dgates.dim(0), k = dgates.dim(1), d = keys.dim(1);
  const T* gradient = dgates.data<T>();
  const T* gates = routing.gates.data<T>();
  const T* scores = routing.scores.data<T>();
  const std::int32_t* indices = routing.indices.data<std::int32_t>();
  const T* address = keys.data<T>();
  const T inverse = T(1) / temperature.data<T>()[0];
  T* result = dquery.data<T>();
  std::vector<double> sums(static_cast<std::size_t>((rows + row_grain - 1) / row_grain));
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      T* target = result + row * d;
      std::fill_n(target, d, T(0));
      const T mean = dot(gates + row * k, gradient + row * k, k);
      for (std::int64_t i = row * k; i < (row + 1) * k; ++i) {
        const T dscore = gates[i] * (gradient[i] - mean) * inverse;
        add_scaled(dscore, address + indices[i] * d, target, d);
        sum += static_cast<double>(dscore) * static_cast<double>(scores[i]);
      }
    }
    sums[static_cast<std::size_t>(begin / row_grain)] = sum;
  });
  if (dlog_temperature != nullptr) {
    const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
    const T slope = -static_cast<T>(total * static_cast<double>(inverse));
    T& target = dlog_temperature->data<T>()[0];
    target = target + slope * temperature.data<T>()[0];
  }
}

}  // namespace

void query_forward(Context& ctx, const Tensor& raw, const Tensor* previous, double ground, Tensor& query,
                   Tensor& norms) {
  with_precision(ctx, [&](auto zero) { make_queries<decltype(zero)>(ctx, raw, previous, ground, query, norms); });
}

void query_backward(Context& ctx, const Tensor& dquery, const Tensor& raw, const Tensor& query, const Tensor& norms,
                    double ground, Tensor& draw, Tensor* dprevious) {
  with_precision(
      ctx, [&](auto zero) { query_gradient<decltype(zero)>(ctx, dquery, raw, query, norms, ground, draw, dprevious); });
}

void route_forward(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias, const Tensor& temperature,
                   bool choice_given, Routing& routing) {
  with_precision(
      ctx, [&](auto zero) { choose<decltype(zero)>(ctx, query, keys, bias, temperature, choice_given, routing); });
}

void route_partitions_forward(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias,
                              const Tensor& temperature, const KeyPartitions& partitions, Routing& routing) {
  with_precision(ctx, [&](auto zero) {
    choose_in_partitions<decltype(zero)>(ctx, query, keys, bias, temperature, partitions, routing);
  });
}

void query_route_forward(Context& ctx, const QueryRoute& route) {
  Tensor query = route.query, norms = route.norms, temperature = route.temperature;
  if (route.log_temperature != nullptr) cpu::exponential(ctx, *route.log_temperature, temperature);
  cpu::query_forward(ctx, route.raw, route.previous, route.ground, query, norms);
  if (route.choice_given || route.partitions.searches_all())
    cpu::route_forward(ctx, query, route.keys, route.bias, temperature, route.choice_given, route.routing);
  else
    cpu::route_partitions_forward(ctx, query, route.keys, route.bias, temperature, route.partitions, route.routing);
}

void router_route_forward(Context& ctx, const RouterOutputLayer& router, const QueryRoute& route) {
  Tensor raw = route.raw;
  cpu::linear_forward(ctx, router.y, router.weight, router.bias, raw);
  cpu::query_route_forward(ctx, route);
}

void hash_routing(Context& ctx, const Tensor& tokens, int experts, std::uint64_t seed, int layer, Tensor& indices) {
  const std::int32_t* token = tokens.data<std::int32_t>();
  const int k = static_cast<int>(indices.dim(1));
  if (k > experts) failed(Code::index_out_of_range, "cannot choose {} of {} experts", k, experts);
  std::int32_t* chosen = indices.data<std::int32_t>();
  parallel_chunks(*ctx.threads, tokens.elements(), 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) hash_route_token(seed, layer, token[t], experts, k, chosen + t * k);
  });
}

void route_backward(Context& ctx, const Tensor& dgates, const Routing& routing, const Tensor& keys,
                    const Tensor& temperature, Tensor& dquery, Tensor* dlog_temperature) {
  with_precision(ctx, [&](auto zero) {
    route_gradient<decltype(zero)>(ctx, dgates, routing, keys, temperature, dquery, dlog_temperature);
  });
}

void route_query_backward(Context& ctx, const RouteQueryBackward& in) {
  const ArenaScope scope(*ctx.arena);
  Tensor dquery = ctx.scratch(in.query.shape(), ctx.master);
  cpu::route_backward(ctx, in.dgates, in.routing, in.keys, in.temperature, dquery, in.dlog_temperature);
  cpu::query_backward(ctx, dquery, in.raw, in.query, in.norms, in.ground, in.draw, in.dprevious);
}

}  // namespace some::cpu
