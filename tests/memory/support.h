// Streams of states with recurring words, and a store that reads them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "core/random.h"
#include "memory/store.h"
#include "reference.h"
#include "runtime/context.h"

namespace some::test {

struct Window {
  std::vector<Row> states;
  std::vector<std::int32_t> targets;
  Row nll;
};

struct StreamShape {
  int windows = 6, positions = 40, d = 12, kinds = 9;
  double noise = 0.25, silent = 0.1;  // silent: fraction of positions without a target
};

// States come from a few clusters, each mostly followed by its own token. The numbers are representable in single
// precision, so that all precisions start from the same values.
inline std::vector<Window> make_stream(const StreamShape& shape, std::uint64_t seed) {
  const RandomStream stream = random_stream(seed, "test.memory");
  std::uint64_t next = 0;
  std::vector<Row> places;
  for (int k = 0; k < shape.kinds; ++k) {
    Row place;
    for (int c = 0; c < shape.d; ++c) place.push_back(stream.normal(next++));
    places.push_back(ReferenceMemory::normalized(place));
  }
  std::vector<Window> windows;
  for (int w = 0; w < shape.windows; ++w) {
    Window window;
    for (int t = 0; t < shape.positions; ++t) {
      const auto kind = static_cast<int>(stream.below(next++, static_cast<std::uint32_t>(shape.kinds)));
      Row state;
      for (int c = 0; c < shape.d; ++c)
        state.push_back(static_cast<float>(2 * places[static_cast<std::size_t>(kind)][static_cast<std::size_t>(c)] +
                                           shape.noise * stream.normal(next++) + 0.125));
      window.states.push_back(state);
      const bool stray = stream.uniform(next++) < 0.2, silent = stream.uniform(next++) < shape.silent;
      window.targets.push_back(silent ? -1 : stray ? (kind + 1) % shape.kinds : kind);
      window.nll.push_back(static_cast<float>(0.5 + 4 * stream.uniform(next++)));
    }
    windows.push_back(window);
  }
  return windows;
}

inline Row mean_of(const StreamShape& shape) { return Row(static_cast<std::size_t>(shape.d), 0.125); }

inline Tensor numbers(const std::vector<Row>& rows, DType type) {
  Tensor out =
      Tensor::empty({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())}, DType::f64);
  double* at = out.data<double>();
  for (const Row& row : rows) at = std::copy(row.begin(), row.end(), at);
  return out.to(type);
}

struct Outcome {
  Row memory_prob, nll;
  std::vector<double> assignments;
};

// Runs one window through the operations, like MemoryReader.
inline Outcome read_window(Context& ctx, const MemorySettings& settings, Store& store, const Window& window,
                           std::int64_t first_place, bool learns = true) {
  ctx.arena->reset();
  const auto count = static_cast<std::int64_t>(window.states.size());
  const Tensor states = numbers(window.states, ctx.compute).to(ctx.device);
  Tensor targets = Tensor::empty({count}, DType::i32), places = Tensor::empty({count}, DType::i64);
  std::copy(window.targets.begin(), window.targets.end(), targets.data<std::int32_t>());
  for (std::int64_t t = 0; t < count; ++t) places.data<std::int64_t>()[t] = packed({0, first_place + t});
  const Tensor wanted = targets.to(ctx.device);
  Tensor queries = ctx.scratch(states.shape(), ctx.master);
  make_queries(ctx, states, store.mean, queries);
  Matches found = make_matches(ctx, settings, count);
  search(ctx, store, settings, queries, wanted, found);
  Outcome out;
  out.memory_prob = read_vector(found.target_prob);
  Tensor nll = numbers({window.nll}, ctx.master).reshape({count}).to(ctx.device);
  mix(ctx, settings, found, wanted, store.shares, nll);
  out.nll = read_vector(nll);
  if (!learns) return out;
  Tensor assignments = ctx.scratch({count}, DType::i32);
  learn(ctx, settings, queries, wanted, places.to(ctx.device), found, store, assignments);
  out.assignments = read_vector(assignments);
  return out;
}

// One refinement pass, like refine() of memory/reader.h.
inline void refine_store(Context& ctx, const MemorySettings& settings, const std::vector<Window>& stream,
                         Store& store) {
  Store draft = make_store(ctx, settings, store.mean);
  std::int64_t first_place = 0;
  for (const Window& window : stream) {
    ctx.arena->reset();
    const auto count = static_cast<std::int64_t>(window.states.size());
    const Tensor states = numbers(window.states, ctx.compute).to(ctx.device);
    Tensor targets = Tensor::empty({count}, DType::i32), places = Tensor::empty({count}, DType::i64);
    std::copy(window.targets.begin(), window.targets.end(), targets.data<std::int32_t>());
    for (std::int64_t t = 0; t < count; ++t) places.data<std::int64_t>()[t] = packed({0, first_place + t});
    const Tensor wanted = targets.to(ctx.device);
    Tensor queries = ctx.scratch(states.shape(), ctx.master), assigned_slots = ctx.scratch({count}, DType::i32);
    make_queries(ctx, states, store.mean, queries);
    assign_slots(ctx, store, settings, queries, wanted, assigned_slots);
    insert_assigned(ctx, queries, wanted, places.to(ctx.device), assigned_slots, draft);
    first_place += count;
  }
  replace_store(ctx, draft, store);
}

inline double largest_error(const Row& got, const Row& wanted) {
  double largest = 0, error = got.size() == wanted.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    const double difference = std::abs(got[i] - wanted[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return error / std::max(largest, 1e-300);
}

inline Row flat(const std::vector<Row>& rows) {
  Row out;
  for (const Row& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}

inline Tensor mean_tensor(const StreamShape& shape) { return numbers({mean_of(shape)}, DType::f64).reshape({shape.d}); }

inline bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu), y = b.to(Device::cpu);
  return x.bytes() == y.bytes() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}
inline bool same_bits(const Store& a, const Store& b) {
  return same_bits(a.keys, b.keys) && same_bits(a.values, b.values) &&
         same_bits(a.entry_counts_or_totals(), b.entry_counts_or_totals()) && same_bits(a.counts, b.counts) &&
         same_bits(a.usage, b.usage) && same_bits(a.shares, b.shares) && same_bits(a.born, b.born) &&
         same_bits(a.hit, b.hit) && a.reach == b.reach && a.partitions() == b.partitions() &&
         (a.partitions() == 1 || same_bits(a.centroids, b.centroids));
}

struct StoreCase {
  const char* name;
  StreamShape shape;
  MemorySettings settings;
};

// Settings of a case: a small store, and only the settings that matter for it.
struct CaseSettings {
  std::int64_t slots = 60;
  double threshold = MemorySettings().threshold;
  std::vector<double> beta = {20};
  double decay = 0.05, counts = 1;
  std::int64_t values = 1;
  bool merge_evicted = false;
  std::int64_t partitions = 1, nprobe = MemorySettings().nprobe;

  operator MemorySettings() const {
    return {.slots = slots,
            .threshold = threshold,
            .beta = beta,
            .decay = decay,
            .switch_rate = 0.02,
            .counts = counts,
            .values = values,
            .merge_evicted = merge_evicted,
            .partitions = partitions,
            .nprobe = nprobe};
  }
};

inline std::vector<StoreCase> store_cases() {
  const auto one = [](const char* name, const StreamShape& shape, const CaseSettings& settings) {
    return StoreCase{name, shape, settings};
  };
  return {
      one("roomy", {}, {.slots = 300}),
      one("full", {12, 40, 12, 9, 0.5, 0.1}, {}),
      one("fewer_slots_than_misses", {5, 30, 7, 9, 0.6, 0.0}, {.slots = 5}),
      one("one_slot", {4, 9, 3, 3, 0.3, 0.2}, {.slots = 1}),
      one("one_position", {30, 1, 5, 3, 0.3, 0.0}, {.slots = 7}),
      one("sharp", {6, 40, 12, 9, 0.25, 0.1}, {.beta = {153}}),
      one("many_betas", {6, 40, 12, 9, 0.25, 0.1}, {.beta = {5, 20, 60, 153, 400}}),
      one("two_betas", {6, 40, 12, 9, 0.25, 0.1}, {.beta = {10, 80}}),
      one("counts_left_out", {8, 40, 12, 9, 0.25, 0.1}, {.counts = 0}),
      one("root_of_counts", {8, 40, 12, 9, 0.25, 0.1}, {.counts = 0.5}),
      one("first_in_first_out", {8, 40, 12, 9, 0.25, 0.1}, {.threshold = never_match}),
      one("no_decay", {8, 40, 12, 9, 0.25, 0.1}, {.decay = 0}),
      one("merge_of_one_token", {12, 40, 12, 9, 0.5, 0.1}, {.merge_evicted = true}),
      one("several_tokens", {12, 40, 12, 9, 0.5, 0.1}, {.beta = {10, 80}, .values = 4, .merge_evicted = true}),
      one("several_tokens_few_slots", {12, 40, 6, 30, 0.9, 0.1},
          {.slots = 50, .counts = 0, .values = 2, .merge_evicted = true}),
      one("all_evicted", {5, 30, 7, 9, 0.6, 0.0}, {.slots = 5, .values = 3, .merge_evicted = true}),
      one("several_tokens_never_passed_on", {8, 40, 12, 9, 0.5, 0.1}, {.values = 4}),
      one("a_cache_that_merges", {8, 40, 12, 9, 0.25, 0.1},
          {.threshold = never_match, .values = 8, .merge_evicted = true}),
      one("nothing_to_predict", {3, 10, 5, 3, 0.2, 1.0}, {}),
      one("wide", {6, 130, 130, 40, 0.1, 0.05}, {.slots = 500}),
      one("more_slots_than_scored_at_once", {13, 700, 4, 300, 0.3, 0.0}, {.slots = 9000, .threshold = 0.9999}),
      one("merges_in_another_part_of_the_search", {15, 700, 4, 300, 0.3, 0.0},
          {.slots = 9000, .threshold = 0.9999, .values = 2, .merge_evicted = true}),
      one("tiles_of_products", {16, 150, 32, 120, 0.4, 0.05},
          {.slots = 350, .beta = {5, 20, 80}, .values = 8, .merge_evicted = true}),
      one("tiles_of_ranks", {18, 170, 64, 150, 0.2, 0.1},
          {.slots = 2217, .threshold = 0.9, .values = 40, .merge_evicted = true}),
      one("tiles_of_one_token", {10, 150, 32, 60, 0.4, 0.05}, {.slots = 350, .beta = {153}, .merge_evicted = true}),
      one("tiles_of_many_betas", {10, 140, 96, 60, 0.3, 0.05},
          {.slots = 500, .beta = {5, 20, 60, 153, 400}, .counts = 0.5, .values = 3, .merge_evicted = true}),
      one("tiles_of_64_tokens", {16, 140, 64, 200, 0.9, 0.1},
          {.slots = 90, .threshold = 0.99, .beta = {10, 80}, .values = 64, .merge_evicted = true}),
      one("tiles_all_evicted", {6, 70, 32, 9, 0.6, 0.0}, {.slots = 5, .values = 3, .merge_evicted = true}),
      one("more_rows_than_a_block", {7, 300, 32, 60, 0.4, 0.05},
          {.slots = 700, .beta = {5, 20, 80}, .values = 8, .merge_evicted = true}),
      one("ranks_of_more_than_a_tile", {9, 800, 32, 400, 0.2, 0.02},
          {.slots = 6000, .threshold = 0.9, .values = 3, .merge_evicted = true}),
      one("tiles_of_parts", {12, 150, 32, 60, 0.4, 0.05},
          {.slots = 600, .threshold = 0.95, .values = 4, .merge_evicted = true, .partitions = 6, .nprobe = 6}),
      one("tiles_with_nothing_to_predict", {3, 10, 32, 3, 0.2, 1.0}, {}),
      one("more_tokens_than_lanes", {30, 40, 6, 90, 0.9, 0.1},
          {.slots = 45, .threshold = 0.99, .values = 40, .merge_evicted = true}),
      one("parts", {12, 40, 12, 9, 0.5, 0.1}, {.slots = 240, .partitions = 8, .nprobe = 2}),
      one("parts_that_are_full", {14, 40, 12, 30, 0.9, 0.1},
          {.slots = 128, .beta = {5, 40}, .values = 4, .merge_evicted = true, .partitions = 8, .nprobe = 3}),
      one("partitions_with_merges_of_one_token", {12, 40, 12, 9, 0.5, 0.1},
          {.slots = 64, .counts = 0, .merge_evicted = true, .partitions = 4, .nprobe = 1}),
      one("parts_with_root_of_counts", {12, 40, 12, 9, 0.5, 0.1},
          {.slots = 64, .counts = 0.6, .values = 4, .merge_evicted = true, .partitions = 4, .nprobe = 2}),
      one("partitions_all_searched", {10, 40, 12, 9, 0.5, 0.1}, {.slots = 120, .partitions = 6, .nprobe = 6}),
      one("parts_fewer_slots_than_misses", {6, 40, 7, 30, 0.9, 0.0},
          {.slots = 12, .values = 2, .merge_evicted = true, .partitions = 4, .nprobe = 2}),
      one("parts_of_one_slot", {8, 5, 5, 9, 0.9, 0.0}, {.slots = 16, .partitions = 16, .nprobe = 3}),
      one("parts_of_a_cache", {8, 40, 12, 9, 0.25, 0.1},
          {.slots = 160, .threshold = never_match, .partitions = 5, .nprobe = 2}),
      one("parts_in_a_wide_store", {24, 130, 130, 80, 0.4, 0.05},
          {.slots = 2100, .threshold = 0.98, .values = 2, .merge_evicted = true, .partitions = 7, .nprobe = 2}),
  };
}

inline StoreCase case_named(const std::string& name) {
  for (const StoreCase& one : store_cases()) {
    if (one.name == name) return one;
  }
  throw std::logic_error("there is no case " + name);
}

}  // namespace some::test
