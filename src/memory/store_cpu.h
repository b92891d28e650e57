// Code shared by search and update on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/support.h"
#include "memory/partitions.h"
#include "memory/store.h"

namespace some::cpu {

using cpu::add_scaled;
using cpu::dot;
using cpu::fast_exp;
using cpu::gemm;
using cpu::gemm_batch;
using cpu::gemm_for;
using cpu::Product;
using cpu::thread_buffer;
using cpu::with_precision;

constexpr double shortest = 1e-12;            // lower bound of a norm that is divided by
constexpr std::int64_t slots_at_once = 8192;  // scores are stored for at most this many slots at a time
constexpr std::int64_t row_grain = 8;

template <typename T>
void normalize(T* row, std::int64_t d) {
  const T length = std::max(std::sqrt(dot(row, row, d)), static_cast<T>(shortest));
  const T inverse = T(1) / length;
  for (std::int64_t i = 0; i < d; ++i) row[i] *= inverse;
}

// scores [rows, last - first] = products of queries [rows, d] with the keys of the slots [first, last).
template <typename T>
void score(Context& ctx, const Store& store, const T* queries, std::int64_t rows, std::int64_t first, std::int64_t last,
           T* scores) {
  const std::int64_t d = store.keys.dim(1), width = last - first;
  gemm_for(ctx, Product<T>{false, true, rows, width, d, T(1), queries, d, store.keys.data<T>() + first * d, d, T(0),
                           scores, width});
}

// Returns the partitions that each query searches, nearest first (ties: the lower one): [rows, nprobe].
template <typename T>
std::vector<std::int32_t> choose_partitions(Context& ctx, const Store& store, const T* queries, std::int64_t rows,
                                            std::int64_t nprobe) {
  ArenaScope scope(*ctx.arena);
  const std::int64_t d = store.keys.dim(1), active = store.partitions_active();
  T* centroids = ctx.scratch({active, d}, dtype_of<T>()).template data<T>();
  T* near = ctx.scratch({std::max<std::int64_t>(rows, 1), active}, dtype_of<T>()).template data<T>();
  std::copy_n(store.centroids.data<T>(), active * d, centroids);
  for (std::int64_t p = 0; p < active; ++p) normalize(centroids + p * d, d);
  gemm_for(ctx, Product<T>{false, true, rows, active, d, T(1), queries, d, centroids, d, T(0), near, active});
  std::vector<std::int32_t> searched(static_cast<std::size_t>(rows * nprobe));
  parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(active));
    for (std::int64_t t = begin; t < end; ++t) {
      const T* row = near + t * active;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(nprobe), order.end(),
                        [&](std::int32_t a, std::int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
      std::copy_n(order.begin(), nprobe, searched.begin() + static_cast<std::ptrdiff_t>(t * nprobe));
    }
  });
  return searched;
}

// (Row, partition) pairs sorted by partition, so that the scores of a partition are one matrix product.
template <typename T>
struct PartitionVisits {
  std::vector<std::int64_t> begin;  // first visit of each partition; [partitions + 1]
  std::vector<std::int64_t> place;  // visit of each (row, partition) pair, in the order of `searched`
  T* rows;                          // [visits, d]

  std::int64_t count() const { return begin.back(); }
};
// In the arena.
template <typename T>
PartitionVisits<T> make_visits(Context& ctx, const Store& store, const T* rows,
                               const std::vector<std::int32_t>& searched, std::int64_t nprobe) {
  const std::int64_t d = store.keys.dim(1), count = std::ssize(searched);
  PartitionVisits<T> out{std::vector<std::int64_t>(static_cast<std::size_t>(store.partitions_active() + 1), 0),
                         std::vector<std::int64_t>(searched.size()),
                         ctx.scratch({std::max<std::int64_t>(count, 1), d}, dtype_of<T>()).template data<T>()};
  for (const std::int32_t part : searched) ++out.begin[static_cast<std::size_t>(part) + 1];
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  std::vector<std::int64_t> next = out.begin;
  for (std::size_t i = 0; i < searched.size(); ++i) out.place[i] = next[static_cast<std::size_t>(searched[i])]++;
  parallel_chunks(*ctx.threads, count, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::copy_n(rows + i / nprobe * d, d, out.rows + out.place[static_cast<std::size_t>(i)] * d);
  });
  return out;
}

// scores [visits, width] = products of each visit's row with the slots [first, first + width) of its partition.
template <typename T>
void score_partitions(Context& ctx, const Store& store, const PartitionVisits<T>& visits, std::int64_t first,
                      std::int64_t width, T* scores) {
  const std::int64_t d = store.keys.dim(1), size = store.partition_size();
  std::vector<Product<T>> products;
  for (std::int64_t p = 0; p + 1 < std::ssize(visits.begin); ++p) {
    const std::int64_t begin = visits.begin[static_cast<std::size_t>(p)],
                       rows = visits.begin[static_cast<std::size_t>(p) + 1] - begin;
    if (rows > 0)
      products.push_back({false, true, rows, width, d, T(1), visits.rows + begin * d, d,
                          store.keys.data<T>() + (p * size + first) * d, d, T(0), scores + begin * width, width});
  }
  if (row_products(ctx) == nullptr) return gemm_batch(*ctx.threads, products);
  for (const Product<T>& product : products) gemm_for(ctx, product);
}

// Calls work(row, scores, first, width) with the scores of each row [count, d] and a range of the slots it searches,
// starting at slot `first`. Different rows may run in parallel; the calls of one row are sequential.
template <typename T, typename Work>
void for_each_score_block(Context& ctx, const Store& store, const MemorySettings& settings, const T* rows,
                          std::int64_t count, Work&& work) {
  ArenaScope scope(*ctx.arena);
  if (searches_some_partitions(store, settings)) {
    const std::int64_t nprobe = partitions_to_search(store, settings), size = store.partition_size();
    const std::vector<std::int32_t> searched = choose_partitions(ctx, store, rows, count, nprobe);
    const PartitionVisits<T> visits = make_visits(ctx, store, rows, searched, nprobe);
    const std::int64_t widest = partition_slots_at_once(size, visits.count());
    T* scores = ctx.scratch({std::max<std::int64_t>(visits.count(), 1), widest}, dtype_of<T>()).template data<T>();
    for (std::int64_t first = 0; first < size; first += widest) {
      const std::int64_t width = std::min(size - first, widest);
      score_partitions(ctx, store, visits, first, width, scores);
      parallel_chunks(*ctx.threads, count, 1, [&](std::int64_t row, std::int64_t) {
        for (std::int64_t pair = row * nprobe; pair < (row + 1) * nprobe; ++pair) {
          const auto at = static_cast<std::size_t>(pair);
          work(row, scores + visits.place[at] * width, searched[at] * size + first, width);
        }
      });
    }
    return;
  }
  const std::int64_t widest = std::min(store.reach, slots_at_once);
  T* scores = ctx.scratch({std::max<std::int64_t>(count, 1), std::max<std::int64_t>(widest, 1)}, dtype_of<T>())
                  .template data<T>();
  for (std::int64_t first = 0; first < store.reach; first += slots_at_once) {
    const std::int64_t last = std::min(store.reach, first + slots_at_once), width = last - first;
    score(ctx, store, rows, count, first, last, scores);
    parallel_chunks(*ctx.threads, count, row_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) work(row, scores + row * width, first, width);
    });
  }
}

// True for slots that are not empty, by their counts or masses.
template <typename T>
struct NotEmpty {
  const T* counts;
  bool operator()(std::int64_t m) const { return counts[m] > T(0); }
};

// Returns the highest score of the slots for which asked(m) is true; the lowest number of the type if there is none.
// asked(m) must be branch-free, so that the loop is vectorized.
template <typename T, typename Asked>
T highest_score(const T* scores, std::int64_t width, Asked asked) {
  constexpr T lowest = std::numeric_limits<T>::lowest();
  T highest = lowest;
#pragma omp simd reduction(max : highest)
  for (std::int64_t m = 0; m < width; ++m) {
    const T here = asked(m) ? scores[m] : lowest;
    highest = here > highest ? here : highest;
  }
  return highest;
}

// Running maximum: the slot with the highest value, the lower one among equals; -1: none so far.
template <typename T>
struct Best {
  std::int32_t& slot;
  T& worth;

  void meet(std::int32_t other, T its_worth) {
    if (slot >= 0 && !(its_worth > worth || (its_worth == worth && other < slot))) return;
    slot = other;
    worth = its_worth;
  }
  // Considers the slots [first, first + width) for which asked(m) is true, with their scores as values.
  template <typename Asked>
  void consider_all(const T* scores, std::int64_t first, std::int64_t width, Asked asked) {
    // Finds the maximum per block of slots first; only the winning block is searched for its position.
    constexpr std::int64_t span_read = 256;
    T highest = std::numeric_limits<T>::lowest();
    std::int64_t m = -1;
    for (std::int64_t from = 0; from < width; from += span_read) {
      const T here = highest_score(scores + from, std::min(width - from, span_read),
                                   [&](std::int64_t i) { return asked(from + i); });
      if (!(here > highest)) continue;
      highest = here;
      m = from;
    }
    if (m < 0 || (slot >= 0 && highest < worth)) return;
    while (!(scores[m] == highest && asked(m))) ++m;
    meet(static_cast<std::int32_t>(first + m), highest);
  }
};

}  // namespace some::cpu
