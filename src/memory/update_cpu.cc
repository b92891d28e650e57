// Update of the memory on the CPU: matches, merge-on-evict, insertions, the centroids of partitions, and refinement.
#include <span>

#include "memory/entries.h"
#include "memory/store_cpu.h"

namespace some::cpu {
namespace {

// Members that change one slot, in order: positions that matched it, or evicted slots that are merged into it.
struct Group {
  std::int32_t slot;
  std::vector<std::int64_t> members;
};
std::vector<Group> grouped(std::vector<std::pair<std::int32_t, std::int64_t>> of_slots) {
  std::sort(of_slots.begin(), of_slots.end());
  std::vector<Group> groups;
  for (const auto& [slot, member] : of_slots) {
    if (groups.empty() || groups.back().slot != slot) groups.push_back({slot, {}});
    groups.back().members.push_back(member);
  }
  return groups;
}
template <typename Work>
void for_groups(Context& ctx, const std::vector<Group>& groups, Work&& work) {
  parallel_chunks(*ctx.threads, static_cast<std::int64_t>(groups.size()), row_grain,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) work(groups[static_cast<std::size_t>(i)]);
                  });
}

template <typename T>
Entries<T, std::int64_t> entries_of(Store& store, std::int64_t slot) {
  Tensor& entry_counts = store.entries() == 1 ? store.counts : store.entry_counts;
  return {store.values.data<std::int32_t>() + slot,
          entry_counts.data<T>() + slot,
          store.born.data<std::int64_t>() + slot,
          store.hit.data<std::int64_t>() + slot,
          store.slots(),
          static_cast<int>(store.entries())};
}

// key <- normalize((inertia * key + sum) / total)
template <typename T>
void move_key(T* key, T inertia, const T* sum, T total, std::int64_t d) {
  for (std::int64_t c = 0; c < d; ++c) key[c] = (inertia * key[c] + sum[c]) / total;
  normalize(key, d);
}

// Returns, for each evicted slot, the slot it is merged into: the nearest slot that stays, among those with the same
// token if slots hold one token each; -1: none.
template <typename T>
std::vector<std::int32_t> find_merge_targets(Context& ctx, const Store& store, const MemorySettings& settings,
                                             const std::vector<std::int32_t>& evicted) {
  const std::int64_t d = store.keys.dim(1), rows = std::ssize(evicted), reach = store.reach;
  const std::int32_t* values = store.values.data<std::int32_t>();
  T* stays = ctx.scratch({reach}, dtype_of<T>()).template data<T>();  // counts of the slots; 0: empty or evicted
  std::copy_n(store.counts.data<T>(), reach, stays);
  T* keys = ctx.scratch({rows, d}, dtype_of<T>()).template data<T>();
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t slot = evicted[static_cast<std::size_t>(i)];
    stays[slot] = T(0);
    std::copy_n(store.keys.data<T>() + slot * d, d, keys + i * d);
  }
  std::vector<std::int32_t> merge_targets(evicted.size(), -1);
  std::vector<T> nearness(evicted.size());
  // scores: products of one row with the slots [first, first + width).
  const auto visit_scores = [&](std::int64_t i, const T* scores, std::int64_t first, std::int64_t width) {
    const auto at = static_cast<std::size_t>(i);
    Best<T> merge_target{merge_targets[at], nearness[at]};
    const NotEmpty<T> left{stays + first};
    if (store.entries() > 1)
      merge_target.consider_all(scores, first, width, left);
    else
      merge_target.consider_all(scores, first, width,
                                [left, own = values[evicted[at]], value = values + first](std::int64_t m) {
                                  return left(m) & (value[m] == own);
                                });
  };
  for_each_score_block(ctx, store, settings, keys, rows, visit_scores);
  return merge_targets;
}

// spec 8, "Learning", item 5: merges the content of evicted slots (-1: none) into their nearest neighbors.
template <typename T>
void merge_evicted(Context& ctx, const MemorySettings& settings, std::span<const std::int32_t> order, Store& store) {
  T* counts = store.counts.data<T>();
  T* usage = store.usage.data<T>();
  std::vector<std::int32_t> evicted;
  for (const std::int32_t slot : order) {
    if (slot >= 0 && counts[slot] > 0) evicted.push_back(slot);
  }
  if (evicted.empty()) return;
  ArenaScope scope(*ctx.arena);
  const std::int64_t d = store.keys.dim(1);
  const std::vector<std::int32_t> merge_targets = find_merge_targets<T>(ctx, store, settings, evicted);
  std::vector<std::pair<std::int32_t, std::int64_t>> by_target;
  for (std::size_t i = 0; i < evicted.size(); ++i) {
    if (merge_targets[i] >= 0) by_target.emplace_back(merge_targets[i], static_cast<std::int64_t>(i));
  }
  T* keys = store.keys.data<T>();
  for_groups(ctx, grouped(std::move(by_target)), [&](const Group& group) {
    T* sum = thread_buffer<T>(0, d);
    std::fill_n(sum, d, T(0));
    const auto merge_target = entries_of<T>(store, group.slot);
    T total = counts[group.slot], used = usage[group.slot];
    const T inertia = total;
    for (const std::int64_t i : group.members) {
      const std::int64_t slot = evicted[static_cast<std::size_t>(i)];
      add_scaled(counts[slot], keys + slot * d, sum, d);
      total += counts[slot];
      used += usage[slot];
      merge_target.merge_all(entries_of<T>(store, slot));
    }
    move_key(keys + group.slot * d, inertia, sum, total, d);
    counts[group.slot] = merge_target.total();
    usage[group.slot] = used;
  });
}

// Returns the slots that the misses are inserted into: the least used ones. All slots from `reach` on have usage 0, so
// the first `misses` of them are enough candidates.
template <typename T>
std::vector<std::int32_t> least_used_slots(const Store& store, std::size_t misses) {
  const T* usage = store.usage.data<T>();
  const std::int64_t candidates = std::min(store.slots(), store.reach + static_cast<std::int64_t>(misses));
  std::vector<std::int32_t> order(static_cast<std::size_t>(candidates));
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min(static_cast<std::ptrdiff_t>(misses), static_cast<std::ptrdiff_t>(candidates));
  const auto less_used = [&](std::int32_t a, std::int32_t b) {
    return usage[a] != usage[b] ? usage[a] < usage[b] : a < b;
  };
  if (count < static_cast<std::ptrdiff_t>(order.size()))
    std::nth_element(order.begin(), order.begin() + count, order.end(), less_used);
  std::sort(order.begin(), order.begin() + count, less_used);
  order.resize(static_cast<std::size_t>(count));
  return order;
}

// The same if each miss searches its own partitions (spec 8, "Partitions"): it takes the least used slot of those
// partitions that no earlier miss has taken. Ties go to the lower slot, but between empty slots to the nearer
// partition. -1: none left.
template <typename T>
std::vector<std::int32_t> least_used_slots(Context& ctx, const Store& store, const MemorySettings& settings,
                                           const T* queries, std::int64_t positions,
                                           const std::vector<std::int64_t>& misses) {
  const T* usage = store.usage.data<T>();
  const std::int64_t nprobe = partitions_to_search(store, settings), size = store.partition_size();
  const std::vector<std::int32_t> searched = choose_partitions(ctx, store, queries, positions, nprobe);
  // No partition can lose more slots than there are misses that search it.
  const auto active = static_cast<std::size_t>(store.partitions_active());
  std::vector<std::int64_t> wanted(active, 0);
  for (const std::int64_t t : misses) {
    for (std::int64_t i = t * nprobe; i < (t + 1) * nprobe; ++i)
      ++wanted[static_cast<std::size_t>(searched[static_cast<std::size_t>(i)])];
  }
  std::vector<std::vector<std::int32_t>> order(active);
  parallel_chunks(*ctx.threads, static_cast<std::int64_t>(active), 1, [&](std::int64_t p, std::int64_t) {
    std::vector<std::int32_t>& own = order[static_cast<std::size_t>(p)];
    const auto count = static_cast<std::ptrdiff_t>(std::min(size, wanted[static_cast<std::size_t>(p)]));
    if (count == 0) return;
    own.resize(static_cast<std::size_t>(size));
    std::iota(own.begin(), own.end(), static_cast<std::int32_t>(p * size));
    const auto less_used = [&](std::int32_t a, std::int32_t b) {
      return usage[a] != usage[b] ? usage[a] < usage[b] : a < b;
    };
    if (count < std::ssize(own)) std::nth_element(own.begin(), own.begin() + count, own.end(), less_used);
    std::sort(own.begin(), own.begin() + count, less_used);
    own.resize(static_cast<std::size_t>(count));
  });
  std::vector<std::size_t> next(active, 0);
  std::vector<std::int32_t> out;
  for (const std::int64_t t : misses) {
    std::int32_t best = -1;
    std::size_t from = 0;
    for (std::int64_t i = t * nprobe; i < (t + 1) * nprobe; ++i) {
      const auto part = static_cast<std::size_t>(searched[static_cast<std::size_t>(i)]);
      if (next[part] == order[part].size()) continue;
      const std::int32_t slot = order[part][next[part]];
      // Ties between empty slots go to the nearer partition.
      const bool equal = best >= 0 && usage[slot] == usage[best];
      if (best >= 0 && !(usage[slot] < usage[best] || (equal && usage[slot] > 0 && slot < best))) continue;
      best = slot;
      from = part;
    }
    if (best >= 0) ++next[from];
    out.push_back(best);
  }
  return out;
}

// Adds every query that was inserted or matched in a partition to its centroid.
template <typename T>
void move_centroids(Context& ctx, const T* queries, const std::int32_t* assignments, std::int64_t positions,
                    Store& store) {
  const std::int64_t d = store.keys.dim(1), size = store.partition_size();
  std::vector<std::pair<std::int32_t, std::int64_t>> taken;  // part, position
  for (std::int64_t t = 0; t < positions; ++t) {
    if (assignments[t] != no_slot)
      taken.emplace_back(static_cast<std::int32_t>(slot_of_assignment(assignments[t]) / size), t);
  }
  for_groups(ctx, grouped(std::move(taken)), [&](const Group& group) {
    T* sum = thread_buffer<T>(0, d);
    std::fill_n(sum, d, T(0));
    for (const std::int64_t t : group.members) add_scaled(T(1), queries + t * d, sum, d);
    add_scaled(T(1), sum, store.centroids.data<T>() + group.slot * d, d);
  });
}

template <typename T>
void split_where_full(Context& ctx, Store& store) {
  const std::int64_t size = store.partition_size();
  const T* counts = store.counts.data<T>();
  std::vector<std::int32_t> used;
  for (std::int64_t p = 0; p < store.partitions_active(); ++p)
    used.push_back(static_cast<std::int32_t>(
        std::count_if(counts + p * size, counts + (p + 1) * size, [](T count) { return count > 0; })));
  split_full_partitions(ctx, used, store);
}

template <typename T>
void apply_update(Context& ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
                  const Tensor& places, const Matches& found, Store& store, Tensor& assignments) {
  const std::int64_t positions = queries.dim(0), d = queries.dim(1);
  const std::int32_t* target = targets.data<std::int32_t>();
  const std::int64_t* place = places.data<std::int64_t>();
  const std::int32_t* nearest = found.nearest.data<std::int32_t>();
  const T* product = found.product.data<T>();
  const T* query = queries.data<T>();
  T* keys = store.keys.data<T>();
  T* counts = store.counts.data<T>();
  T* usage = store.usage.data<T>();
  std::int32_t* assignment = assignments.data<std::int32_t>();

  const T kept = static_cast<T>(1 - settings.decay), match = static_cast<T>(settings.threshold);
  for (std::int64_t m = 0; m < store.reach; ++m) usage[m] *= kept;  // spec 8, "Learning", item 1

  std::vector<std::int64_t> misses;
  std::vector<std::pair<std::int32_t, std::int64_t>> found_in;  // slot, position
  for (std::int64_t t = 0; t < positions; ++t) {
    assignment[t] = no_slot;
    if (target[t] < 0) continue;
    if (nearest[t] >= 0 && product[t] > match) {
      found_in.emplace_back(nearest[t], t);
      assignment[t] = nearest[t];
    } else {
      misses.push_back(t);
    }
  }
  for_groups(ctx, grouped(std::move(found_in)), [&](const Group& hits) {  // item 3
    T* sum = thread_buffer<T>(0, d);
    std::fill_n(sum, d, T(0));
    const auto entries = entries_of<T>(store, hits.slot);
    const T inertia = counts[hits.slot], more = static_cast<T>(hits.members.size());
    for (const std::int64_t t : hits.members) {
      add_scaled(T(1), query + t * d, sum, d);
      entries.found(target[t], place[t]);
    }
    move_key(keys + hits.slot * d, inertia, sum, inertia + more, d);
    counts[hits.slot] = entries.total();
    usage[hits.slot] += more;
  });

  const std::vector<std::int32_t> order =  // item 4
      store.partitions() > 1 ? least_used_slots<T>(ctx, store, settings, query, positions, misses)
                             : least_used_slots<T>(store, misses.size());
  if (settings.merge_evicted) merge_evicted<T>(ctx, settings, order, store);
  for (std::size_t j = 0; j < order.size(); ++j) {
    const std::int64_t slot = order[j], t = misses[j];
    if (slot < 0) continue;
    assignment[t] = static_cast<std::int32_t>(slot) | inserted_flag | (counts[slot] > 0 ? evicted_flag : 0);
    std::copy_n(query + t * d, d, keys + slot * d);
    entries_of<T>(store, slot).begin(target[t], place[t]);
    counts[slot] = usage[slot] = T(1);
    store.reach = std::max(store.reach, slot + 1);
  }
  if (store.partitions() == 1) return;
  move_centroids<T>(ctx, query, assignment, positions, store);
  if (store.reach < store.slots()) split_where_full<T>(ctx, store);
}

template <typename T>
void insert_into_assigned(Context& ctx, const Tensor& queries, const Tensor& targets, const Tensor& places,
                          const Tensor& assigned_slots, Store& store) {
  const std::int64_t positions = queries.dim(0), d = queries.dim(1);
  const std::int32_t* target = targets.data<std::int32_t>();
  const std::int64_t* place = places.data<std::int64_t>();
  const std::int32_t* assigned = assigned_slots.data<std::int32_t>();
  std::vector<std::pair<std::int32_t, std::int64_t>> of_slots;
  for (std::int64_t t = 0; t < positions; ++t) {
    if (assigned[t] >= 0) of_slots.emplace_back(assigned[t], t);
  }
  for_groups(ctx, grouped(std::move(of_slots)), [&](const Group& group) {
    T* sum = store.keys.data<T>() + group.slot * d;
    const auto entries = entries_of<T>(store, group.slot);
    for (const std::int64_t t : group.members) {
      add_scaled(T(1), queries.data<T>() + t * d, sum, d);
      entries.meet(target[t], place[t]);
    }
  });
}

template <typename T>
void normalize_sums(Context& ctx, Store& store) {
  const std::int64_t d = store.keys.dim(1), size = store.partition_size();
  T* keys = store.keys.data<T>();
  for (std::int64_t p = 0; store.partitions() > 1 && p < store.partitions(); ++p) {
    T* centroid = store.centroids.data<T>() + p * d;
    std::fill_n(centroid, d, T(0));
    for (std::int64_t m = p * size; m < (p + 1) * size; ++m) add_scaled(T(1), keys + m * d, centroid, d);
  }
  parallel_chunks(*ctx.threads, store.slots(), row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = begin; m < end; ++m) {
      store.counts.data<T>()[m] = store.usage.data<T>()[m] = entries_of<T>(store, m).total();
      normalize(keys + m * d, d);
    }
  });
}

}  // namespace

void learn(Context& ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
           const Tensor& places, const Matches& found, Store& store, Tensor& assignments) {
  with_precision(ctx, [&](auto zero) {
    apply_update<decltype(zero)>(ctx, settings, queries, targets, places, found, store, assignments);
  });
}

void insert_assigned(Context& ctx, const Tensor& queries, const Tensor& targets, const Tensor& places,
                     const Tensor& assigned_slots, Store& store) {
  with_precision(ctx, [&](auto zero) {
    insert_into_assigned<decltype(zero)>(ctx, queries, targets, places, assigned_slots, store);
  });
}

void finish_refinement(Context& ctx, Store& store) {
  with_precision(ctx, [&](auto zero) { normalize_sums<decltype(zero)>(ctx, store); });
}

}  // namespace some::cpu
