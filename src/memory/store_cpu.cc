#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "memory/entries.h"
#include "memory/store.h"
#include "ops/gemm_cpu.h"
#include "ops/math_cpu.h"
#include "ops/support_cpu.h"

namespace some::memory::cpu {
namespace {

using namespace ops::cpu;

constexpr double shortest = 1e-12;            // a length below it is divided by it instead
constexpr std::int64_t slots_at_once = 8192;  // scores exist for this many slots at most
constexpr std::int64_t row_grain = 8;

template <typename T>
void normalize(T* row, std::int64_t d) {
  const T length = std::max(std::sqrt(dot(row, row, d)), static_cast<T>(shortest));
  const T inverse = T(1) / length;
  for (std::int64_t i = 0; i < d; ++i) row[i] *= inverse;
}

// What a slot counts for beside its nearness: e^(ln n) is n, and 0 where it is empty.
template <typename T>
const T* masses(Context& ctx, const Store& store, const MemorySettings& settings) {
  const T* counts = store.counts.data<T>();
  if (settings.counts) return counts;
  T* ones = ctx.scratch({std::max<std::int64_t>(store.reach, 1)}, dtype_of<T>()).template data<T>();
  for (std::int64_t m = 0; m < store.reach; ++m) ones[m] = counts[m] > 0 ? T(1) : T(0);
  return ones;
}

// scores [rows, last - first] of queries [rows, d] with the keys of some slots.
template <typename T>
void score(Context& ctx, const Store& store, const T* queries, std::int64_t rows, std::int64_t first, std::int64_t last,
           T* scores) {
  const std::int64_t d = store.keys.dim(1), width = last - first;
  gemm(*ctx.threads, false, true, rows, width, d, T(1), queries, d, store.keys.data<T>() + first * d, d, T(0), scores,
       width);
}

// What is gathered over the parts of the store for one position and one sharpness: sums of e^(... - shift).
template <typename T>
struct Sums {
  T shift = -std::numeric_limits<T>::infinity(), all = 0, matching = 0;

  void add(const Sums& part) {
    if (!(part.all > 0)) return;
    const T higher = std::max(shift, part.shift);
    const T mine = all > 0 ? exp_of(shift - higher) : T(0), theirs = exp_of(part.shift - higher);
    all = mine * all + theirs * part.all;
    matching = mine * matching + theirs * part.matching;
    shift = higher;
  }
};

// The highest score of a slot that is not empty; the lowest number there is where all are.
template <typename T>
T highest_score(const T* scores, const T* mass, std::int64_t width) {
  constexpr T lowest = std::numeric_limits<T>::lowest();
  T highest = lowest;
#pragma omp simd reduction(max : highest)
  for (std::int64_t m = 0; m < width; ++m) {
    const T here = mass[m] > T(0) ? scores[m] : lowest;
    highest = here > highest ? here : highest;
  }
  return highest;
}

// Which of some slots are a token, where each holds one: 1 or 0.
template <typename T>
struct IsToken {
  const std::int32_t* values;
  std::int32_t token;
  T operator()(std::int64_t m) const { return values[m] == token ? T(1) : T(0); }
};
// What part of each of some slots is a token, where they can hold several.
template <typename T>
struct PartOfSlot {
  const T* part;
  T operator()(std::int64_t m) const { return part[m]; }
};
template <typename T>
PartOfSlot<T> parts_of_token(const Store& store, std::int64_t first, std::int64_t width, std::int32_t token, T* part) {
  const std::int64_t slots = store.slots();
  const T* counts = store.counts.data<T>() + first;
  std::fill_n(part, width, T(0));
  for (std::int64_t j = 0; j < store.entries(); ++j) {
    const std::int32_t* value = store.values.data<std::int32_t>() + j * slots + first;
    const T* tally = store.tallies.data<T>() + j * slots + first;
#pragma omp simd
    for (std::int64_t m = 0; m < width; ++m) part[m] += value[m] == token ? tally[m] : T(0);
  }
#pragma omp simd
  for (std::int64_t m = 0; m < width; ++m) part[m] /= std::max(counts[m], T(1));
  return {part};
}

template <typename T, typename Part>
Sums<T> sums_of(const T* scores, const T* mass, std::int64_t width, T sharpness, T highest, Part part) {
  const T shift = sharpness * highest;
  T all = 0, matching = 0;
#pragma omp simd reduction(+ : all, matching)
  for (std::int64_t m = 0; m < width; ++m) {
    const T weight = mass[m] * exp_of(sharpness * scores[m] - shift);
    all += weight;
    matching += weight * part(m);
  }
  return {shift, all, matching};
}

// One position: what the slots [first, first + width) say of its target, and which of them that hold it is nearest.
template <typename T>
struct Position {
  Sums<T>* sums;  // one a sharpness
  std::int32_t& nearest;
  T& product;

  template <typename Part>
  void look(const MemorySettings& settings, const T* scores, const T* mass, std::int64_t first, std::int64_t width,
            T highest, Part part) {
    for (std::size_t s = 0; s < settings.sharpness.size(); ++s)
      sums[s].add(sums_of(scores, mass, width, static_cast<T>(settings.sharpness[s]), highest, part));
    for (std::int64_t m = 0; m < width; ++m) {
      if (!(part(m) > 0) || (nearest >= 0 && !(scores[m] > product))) continue;
      nearest = static_cast<std::int32_t>(first + m);
      product = scores[m];
    }
  }
};

template <typename T>
void search_store(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& targets, Found& found) {
  const std::int64_t positions = queries.dim(0), kinds = static_cast<std::int64_t>(settings.sharpness.size());
  const std::int32_t* target = targets.data<std::int32_t>();
  const std::int32_t* values = store.values.data<std::int32_t>();
  std::int32_t* nearest = found.nearest.data<std::int32_t>();
  T* product = found.product.data<T>();
  T* said = found.said.data<T>();
  ArenaScope scope(*ctx.arena);
  const T* mass = masses<T>(ctx, store, settings);
  const std::int64_t widest = std::min(store.reach, slots_at_once);
  T* scores = ctx.scratch({positions, std::max<std::int64_t>(widest, 1)}, dtype_of<T>()).template data<T>();
  std::vector<Sums<T>> sums(static_cast<std::size_t>(positions * kinds));
  std::fill_n(nearest, positions, -1);
  std::fill_n(product, positions, T(0));
  for (std::int64_t first = 0; first < store.reach; first += slots_at_once) {
    const std::int64_t last = std::min(store.reach, first + slots_at_once), width = last - first;
    score(ctx, store, queries.data<T>(), positions, first, last, scores);
    parallel_chunks(*ctx.threads, positions, row_grain, [&](std::int64_t begin, std::int64_t end) {
      T* part = store.entries() > 1 ? thread_buffer<T>(0, width) : nullptr;
      for (std::int64_t t = begin; t < end; ++t) {
        if (target[t] < 0) continue;
        const T* row = scores + t * width;
        const T highest = highest_score(row, mass + first, width);
        if (highest == std::numeric_limits<T>::lowest()) continue;  // all empty
        Position<T> here{sums.data() + t * kinds, nearest[t], product[t]};
        if (part == nullptr)
          here.look(settings, row, mass + first, first, width, highest, IsToken<T>{values + first, target[t]});
        else
          here.look(settings, row, mass + first, first, width, highest,
                    parts_of_token(store, first, width, target[t], part));
      }
    });
  }
  for (std::int64_t t = 0; t < positions; ++t) {
    for (std::int64_t s = 0; s < kinds; ++s) {
      const Sums<T>& one = sums[static_cast<std::size_t>(t * kinds + s)];
      said[s * positions + t] = one.all > 0 ? one.matching / one.all : T(0);
    }
  }
}

template <typename T>
void mix_shares(const MemorySettings& settings, const Found& found, const Tensor& targets, Tensor& shares,
                Tensor& nll) {
  const std::int64_t positions = targets.dim(0), kinds = static_cast<std::int64_t>(settings.sharpness.size());
  const std::int64_t all = kinds * shares_each;
  const std::int32_t* target = targets.data<std::int32_t>();
  const T* said = found.said.data<T>();
  T* weight = shares.data<T>();
  T* loss = nll.data<T>();
  const T kept = static_cast<T>(1 - settings.share), given = static_cast<T>(settings.share / static_cast<double>(all));
  std::array<T, most_sharpnesses * shares_each> part;
  for (std::int64_t t = 0; t < positions; ++t) {
    if (target[t] < 0) continue;
    // A target that nobody expects at all must not make numbers of nothing.
    const T model = std::max(std::exp(-loss[t]), std::numeric_limits<T>::min());
    T answer = 0;
    for (std::int64_t s = 0; s < kinds; ++s) {
      const T memory = said[s * positions + t];
      for (std::int64_t j = 0; j < shares_each; ++j) {
        const T share = static_cast<T>(share_list[static_cast<std::size_t>(j)]);
        const auto at = static_cast<std::size_t>(s * shares_each + j);
        part[at] = weight[at] * ((T(1) - share) * model + share * memory);
        answer += part[at];
      }
    }
    for (std::int64_t i = 0; i < all; ++i) weight[i] = kept * (part[static_cast<std::size_t>(i)] / answer) + given;
    loss[t] = -std::log(answer);
  }
}

// Positions that hit one slot, or slots that leave what they hold to one: in order.
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
  Tensor& tallies = store.entries() == 1 ? store.counts : store.tallies;
  return {store.values.data<std::int32_t>() + slot,
          tallies.data<T>() + slot,
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

// The slot that each of those that give way has for its heir: the nearest one that stays; of the same token where slots
// hold but one. -1: there is none.
template <typename T>
std::vector<std::int32_t> heirs_of(Context& ctx, const Store& store, const std::vector<std::int32_t>& leaving) {
  const std::int64_t d = store.keys.dim(1), rows = std::ssize(leaving), reach = store.reach;
  const std::int32_t* values = store.values.data<std::int32_t>();
  const T* counts = store.counts.data<T>();
  std::vector<char> stays(static_cast<std::size_t>(reach));
  for (std::int64_t m = 0; m < reach; ++m) stays[static_cast<std::size_t>(m)] = counts[m] > 0;
  T* keys = ctx.scratch({rows, d}, dtype_of<T>()).template data<T>();
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t slot = leaving[static_cast<std::size_t>(i)];
    stays[static_cast<std::size_t>(slot)] = false;
    std::copy_n(store.keys.data<T>() + slot * d, d, keys + i * d);
  }
  T* scores = ctx.scratch({rows, std::min(reach, slots_at_once)}, dtype_of<T>()).template data<T>();
  std::vector<std::int32_t> heirs(leaving.size(), -1);
  std::vector<T> nearness(leaving.size());
  for (std::int64_t first = 0; first < reach; first += slots_at_once) {
    const std::int64_t last = std::min(reach, first + slots_at_once), width = last - first;
    score(ctx, store, keys, rows, first, last, scores);
    parallel_chunks(*ctx.threads, rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const T* row = scores + i * width;
        const std::int32_t own = values[leaving[at]];
        for (std::int64_t m = 0; m < width; ++m) {
          if (!stays[static_cast<std::size_t>(first + m)] || (heirs[at] >= 0 && !(row[m] > nearness[at]))) continue;
          if (store.entries() == 1 && values[first + m] != own) continue;
          heirs[at] = static_cast<std::int32_t>(first + m);
          nearness[at] = row[m];
        }
      }
    });
  }
  return heirs;
}

// spec 8, learning 4: what slots hold that give way goes to their heirs.
template <typename T>
void pass_on(Context& ctx, std::span<const std::int32_t> giving_way, Store& store) {
  T* counts = store.counts.data<T>();
  T* usage = store.usage.data<T>();
  std::vector<std::int32_t> leaving;
  for (const std::int32_t slot : giving_way) {
    if (counts[slot] > 0) leaving.push_back(slot);
  }
  if (leaving.empty()) return;
  ArenaScope scope(*ctx.arena);
  const std::int64_t d = store.keys.dim(1);
  const std::vector<std::int32_t> heirs = heirs_of<T>(ctx, store, leaving);
  std::vector<std::pair<std::int32_t, std::int64_t>> of_heirs;
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    if (heirs[i] >= 0) of_heirs.emplace_back(heirs[i], static_cast<std::int64_t>(i));
  }
  T* keys = store.keys.data<T>();
  for_groups(ctx, grouped(std::move(of_heirs)), [&](const Group& group) {
    T* sum = thread_buffer<T>(0, d);
    std::fill_n(sum, d, T(0));
    const auto heir = entries_of<T>(store, group.slot);
    T total = counts[group.slot], used = usage[group.slot];
    const T inertia = total;
    for (const std::int64_t i : group.members) {
      const std::int64_t slot = leaving[static_cast<std::size_t>(i)];
      add_scaled(counts[slot], keys + slot * d, sum, d);
      total += counts[slot];
      used += usage[slot];
      heir.take_all(entries_of<T>(store, slot));
    }
    move_key(keys + group.slot * d, inertia, sum, total, d);
    counts[group.slot] = heir.total();
    usage[group.slot] = used;
  });
}

template <typename T>
void take_lesson(Context& ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
                 const Tensor& places, const Found& found, Store& store, Tensor& fates) {
  const std::int64_t positions = queries.dim(0), d = queries.dim(1);
  const std::int32_t* target = targets.data<std::int32_t>();
  const std::int64_t* place = places.data<std::int64_t>();
  const std::int32_t* nearest = found.nearest.data<std::int32_t>();
  const T* product = found.product.data<T>();
  const T* query = queries.data<T>();
  T* keys = store.keys.data<T>();
  T* counts = store.counts.data<T>();
  T* usage = store.usage.data<T>();
  std::int32_t* fate = fates.data<std::int32_t>();

  const T kept = static_cast<T>(1 - settings.decay), match = static_cast<T>(settings.match);
  for (std::int64_t m = 0; m < store.reach; ++m) usage[m] *= kept;  // spec 8, learning 1

  std::vector<std::int64_t> misses;
  std::vector<std::pair<std::int32_t, std::int64_t>> found_in;  // slot, position
  for (std::int64_t t = 0; t < positions; ++t) {
    fate[t] = no_fate;
    if (target[t] < 0) continue;
    if (nearest[t] >= 0 && product[t] > match) {
      found_in.emplace_back(nearest[t], t);
      fate[t] = nearest[t];
    } else {
      misses.push_back(t);
    }
  }
  for_groups(ctx, grouped(std::move(found_in)), [&](const Group& hits) {  // learning 3
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

  // Learning 4. All slots from `reach` on have usage 0: as many of them as there are misses are candidates enough.
  const std::int64_t candidates = std::min(store.slots(), store.reach + static_cast<std::int64_t>(misses.size()));
  std::vector<std::int32_t> order(static_cast<std::size_t>(candidates));
  std::iota(order.begin(), order.end(), 0);
  const auto births = std::min(static_cast<std::ptrdiff_t>(misses.size()), static_cast<std::ptrdiff_t>(candidates));
  const auto less_used = [&](std::int32_t a, std::int32_t b) {
    return usage[a] != usage[b] ? usage[a] < usage[b] : a < b;
  };
  if (births < static_cast<std::ptrdiff_t>(order.size()))
    std::nth_element(order.begin(), order.begin() + births, order.end(), less_used);
  std::sort(order.begin(), order.begin() + births, less_used);
  if (settings.inherit) pass_on<T>(ctx, std::span(order).first(static_cast<std::size_t>(births)), store);
  for (std::ptrdiff_t j = 0; j < births; ++j) {
    const std::int64_t slot = order[static_cast<std::size_t>(j)], t = misses[static_cast<std::size_t>(j)];
    std::copy_n(query + t * d, d, keys + slot * d);
    entries_of<T>(store, slot).begin(target[t], place[t]);
    counts[slot] = usage[slot] = T(1);
    fate[t] = static_cast<std::int32_t>(slot) | born_flag;
    store.reach = std::max(store.reach, slot + 1);
  }
}

template <typename T>
void weigh(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries, const Tensor& say,
           Tensor& weights) {
  const std::int64_t rows = queries.dim(0), reach = store.reach;
  const std::int64_t kinds = static_cast<std::int64_t>(settings.sharpness.size());
  if (reach == 0) return;
  ArenaScope scope(*ctx.arena);
  const T* mass = masses<T>(ctx, store, settings);
  T* out = weights.data<T>();
  T* scores = ctx.scratch({rows, reach}, dtype_of<T>()).template data<T>();
  const T* heard = say.data<T>();
  const IsToken<T> no_token{store.values.data<std::int32_t>(), -1};
  score(ctx, store, queries.data<T>(), rows, 0, reach, scores);
  parallel_chunks(*ctx.threads, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = scores + r * reach;
      T* result = out + r * reach;
      std::fill_n(result, reach, T(0));
      const T highest = highest_score(row, mass, reach);
      if (highest == std::numeric_limits<T>::lowest()) continue;
      for (std::int64_t s = 0; s < kinds; ++s) {
        const T sharpness = static_cast<T>(settings.sharpness[static_cast<std::size_t>(s)]);
        const Sums<T> sums = sums_of(row, mass, reach, sharpness, highest, no_token);
        const T factor = heard[r * kinds + s] / sums.all;
#pragma omp simd
        for (std::int64_t m = 0; m < reach; ++m)
          result[m] += factor * mass[m] * exp_of(sharpness * row[m] - sums.shift);
      }
    }
  });
}

}  // namespace

void make_queries(Context& ctx, const Tensor& states, const Tensor& mean, Tensor& queries) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t d = mean.dim(0);
    const T* in = states.data<T>();
    const T* middle = mean.data<T>();
    T* out = queries.data<T>();
    parallel_chunks(*ctx.threads, states.dim(0), row_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t c = 0; c < d; ++c) out[t * d + c] = in[t * d + c] - middle[c];
        normalize(out + t * d, d);
      }
    });
  });
}

void search(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
            const Tensor& targets, Found& found) {
  with_precision(ctx, [&](auto zero) { search_store<decltype(zero)>(ctx, store, settings, queries, targets, found); });
}

void mix(Context& ctx, const MemorySettings& settings, const Found& found, const Tensor& targets, Tensor& shares,
         Tensor& nll) {
  with_precision(ctx, [&](auto zero) { mix_shares<decltype(zero)>(settings, found, targets, shares, nll); });
}

void learn(Context& ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
           const Tensor& places, const Found& found, Store& store, Tensor& fates) {
  with_precision(ctx, [&](auto zero) {
    take_lesson<decltype(zero)>(ctx, settings, queries, targets, places, found, store, fates);
  });
}

void slot_weights(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& say, Tensor& weights) {
  with_precision(ctx, [&](auto zero) { weigh<decltype(zero)>(ctx, store, settings, queries, say, weights); });
}

}  // namespace some::memory::cpu
