// Finds the slots that hold the targets of a window, on the CPU. Used by the search and by refinement.
#pragma once

#include <span>
#include <utility>

#include "memory/store_cpu.h"

namespace some::cpu {

template <typename T>
struct Holder {
  std::int32_t slot;
  T part;  // the target's fraction of the slot's count; above 0
};

// Lists the slots that hold each target, in slot order. A window has few distinct targets, so one scan of the store for
// all of them is cheaper than one scan per position, unless the positions search only a small part of it.
template <typename T>
class TargetSlots {
 public:
  TargetSlots(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& targets)
      : store_(store), targets_(targets.data<std::int32_t>()) {
    const std::int64_t positions = targets.dim(0);
    const bool some = searches_some_partitions(store, settings);
    const std::int64_t searches = positions * (some ? partitions_to_search(store, settings) : 1);
    listed_ = searches >= worth_a_list * (some ? store.partitions_active() : 1);
    if (listed_) list(ctx, positions);
  }

  // Returns the holders of a position's target among the slots [first, first + width). The position must have a target.
  // The result is valid until the calling thread's next call.
  std::span<const Holder<T>> of(std::int64_t position, std::int64_t first, std::int64_t width) const {
    if (!listed_) return look_up(targets_[position], first, width);
    const auto row = static_cast<std::size_t>(rows_[static_cast<std::size_t>(targets_[position])]);
    const auto before = [](const Holder<T>& holder, std::int64_t slot) { return holder.slot < slot; };
    const auto end = holders_.begin() + begin_[row + 1];
    const auto from = std::lower_bound(holders_.begin() + begin_[row], end, first, before);
    return {from, std::lower_bound(from, end, first + width, before)};
  }

 private:
  static constexpr std::int64_t worth_a_list = 24;  // scans of the store that cost about as much as building the list
  static constexpr std::int64_t slots_of_a_piece = 1024;

  static T part_of(T token_count, T count) { return token_count / std::max(count, T(1)); }

  // Counting sort: counts the holders of each token per piece of the store, which gives their positions in the list.
  void list(Context& ctx, std::int64_t positions) {
    const std::int64_t slots = store_.slots(), reach = store_.reach, entries = store_.entries();
    const std::int32_t* values = store_.values.data<std::int32_t>();
    const T* entry_counts = store_.entry_counts_or_totals().template data<T>();
    const T* counts = store_.counts.data<T>();
    // Maps each token up to the highest target to its row if it is a target; all other tokens, and none (-1), to
    // `other`.
    const std::int32_t highest = std::max(*std::max_element(targets_, targets_ + positions), 0);
    const auto beyond = static_cast<std::uint32_t>(highest) + 1;
    rows_.assign(beyond + 1, -1);
    std::int32_t other = 0;
    for (std::int64_t t = 0; t < positions; ++t) {
      if (targets_[t] < 0) continue;
      if (std::int32_t& row = rows_[static_cast<std::size_t>(targets_[t])]; row < 0) row = other++;
    }
    std::replace(rows_.begin(), rows_.end(), -1, other);
    const auto row_at = [&](std::int64_t j, std::int64_t m) {
      return rows_[std::min(static_cast<std::uint32_t>(values[j * slots + m]), beyond)];
    };
    const std::int64_t pieces = (reach + slots_of_a_piece - 1) / slots_of_a_piece, rows = other + 1;
    std::vector<std::int64_t> next(static_cast<std::size_t>(pieces * rows), 0);
    parallel_chunks(*ctx.threads, reach, slots_of_a_piece, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t* found = next.data() + begin / slots_of_a_piece * rows;
      for (std::int64_t j = 0; j < entries; ++j) {
        for (std::int64_t m = begin; m < end; ++m) ++found[row_at(j, m)];
      }
    });
    begin_.assign(1, 0);
    for (std::int64_t row = 0, at = 0; row < other; ++row) {
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        at += std::exchange(next[static_cast<std::size_t>(piece * rows + row)], at);
      begin_.push_back(at);
    }
    holders_.resize(static_cast<std::size_t>(begin_.back()));
    parallel_chunks(*ctx.threads, reach, slots_of_a_piece, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t* to = next.data() + begin / slots_of_a_piece * rows;
      for (std::int64_t m = begin; m < end; ++m) {
        for (std::int64_t j = 0; j < entries; ++j) {
          const std::int32_t row = row_at(j, m);
          if (row == other) continue;
          holders_[static_cast<std::size_t>(to[row]++)] = {static_cast<std::int32_t>(m),
                                                           part_of(entry_counts[j * slots + m], counts[m])};
        }
      }
    });
  }

  std::span<const Holder<T>> look_up(std::int32_t token, std::int64_t first, std::int64_t width) const {
    const std::int64_t slots = store_.slots();
    T* entry_counts_or_totals = thread_buffer<T>(1, width);
    std::fill_n(entry_counts_or_totals, width, T(0));
    for (std::int64_t j = 0; j < store_.entries(); ++j) {
      const std::int32_t* value = store_.values.data<std::int32_t>() + j * slots + first;
      const T* token_count = store_.entry_counts_or_totals().template data<T>() + j * slots + first;
#pragma omp simd
      for (std::int64_t m = 0; m < width; ++m) entry_counts_or_totals[m] += value[m] == token ? token_count[m] : T(0);
    }
    Holder<T>* out = thread_buffer<Holder<T>>(2, width);
    std::size_t found = 0;
    for (std::int64_t m = 0; m < width; ++m) {
      if (entry_counts_or_totals[m] > 0)
        out[found++] = {static_cast<std::int32_t>(first + m),
                        part_of(entry_counts_or_totals[m], store_.counts.data<T>()[first + m])};
    }
    return {out, found};
  }

  const Store& store_;
  const std::int32_t* targets_;
  bool listed_;
  std::vector<std::int32_t> rows_;   // of each token
  std::vector<std::int64_t> begin_;  // of each row; [rows + 1]
  std::vector<Holder<T>> holders_;
};

}  // namespace some::cpu
