// Search of the memory on the CPU: queries, probabilities of targets, the mixture, and the weights of slots.
#include "memory/holders_cpu.h"
#include "memory/mixture.h"

namespace some::cpu {
namespace {

// Returns the weight of each slot apart from its key: e^(power ln n) = n^power, and 0 for empty slots.
template <typename T>
const T* masses(Context& ctx, const Store& store, const MemorySettings& settings) {
  const T* counts = store.counts.data<T>();
  if (settings.counts == 1.0) return counts;
  const T power = static_cast<T>(settings.counts);
  T* out = ctx.scratch({std::max<std::int64_t>(store.reach, 1)}, dtype_of<T>()).template data<T>();
  for (std::int64_t m = 0; m < store.reach; ++m) out[m] = counts[m] > 0 ? std::pow(counts[m], power) : T(0);
  return out;
}

// Sums over the store for one position and one beta, each of e^(... - shift).
template <typename T>
struct Sums {
  T shift = -std::numeric_limits<T>::infinity(), all = 0, matching = 0;

  void add(const Sums& part) {
    if (!(part.all > 0)) return;
    const T higher = std::max(shift, part.shift);
    const T mine = all > 0 ? fast_exp(shift - higher) : T(0), theirs = fast_exp(part.shift - higher);
    all = mine * all + theirs * part.all;
    matching = mine * matching + theirs * part.matching;
    shift = higher;
  }
};

// Returns 1 if a slot holds the token, otherwise 0; for slots with one token each.
template <typename T>
struct IsToken {
  const std::int32_t* values;
  std::int32_t token;
  T operator()(std::int64_t m) const { return values[m] == token ? T(1) : T(0); }
};
// Returns the token's fraction of each slot; for slots with several tokens.
template <typename T>
struct PartOfSlot {
  const T* part;
  T operator()(std::int64_t m) const { return part[m]; }
};
template <typename T, typename Part>
Sums<T> sums_of(const T* scores, const T* mass, std::int64_t width, T beta, T highest, Part part) {
  const T shift = beta * highest;
  T all = 0, matching = 0;
#pragma omp simd reduction(+ : all, matching)
  for (std::int64_t m = 0; m < width; ++m) {
    const T weight = mass[m] * fast_exp(beta * scores[m] - shift);
    all += weight;
    matching += weight * part(m);
  }
  return {shift, all, matching};
}

template <typename T>
void search_store(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& targets, Matches& found) {
  const std::int64_t positions = queries.dim(0), beta_count = static_cast<std::int64_t>(settings.beta.size());
  const std::int32_t* target = targets.data<std::int32_t>();
  const std::int32_t* values = store.values.data<std::int32_t>();
  std::int32_t* nearest = found.nearest.data<std::int32_t>();
  T* product = found.product.data<T>();
  T* target_prob = found.target_prob.data<T>();
  ArenaScope scope(*ctx.arena);
  const T* mass = masses<T>(ctx, store, settings);
  const TargetSlots<T> holders(ctx, store, settings, targets);
  std::vector<Sums<T>> sums(static_cast<std::size_t>(positions * beta_count));
  std::fill_n(nearest, positions, -1);
  std::fill_n(product, positions, T(0));
  // scores: products of one position with the slots [first, first + width).
  const auto visit_scores = [&](std::int64_t t, const T* scores, std::int64_t first, std::int64_t width) {
    if (target[t] < 0) return;
    const T highest = highest_score(scores, width, NotEmpty<T>{mass + first});
    if (highest == std::numeric_limits<T>::lowest()) return;  // all empty
    const auto add_sums = [&](auto part) {
      for (std::int64_t s = 0; s < beta_count; ++s)
        sums[static_cast<std::size_t>(t * beta_count + s)].add(sums_of(
            scores, mass + first, width, static_cast<T>(settings.beta[static_cast<std::size_t>(s)]), highest, part));
    };
    const std::span<const Holder<T>> own = holders.of(t, first, width);
    if (store.entries() == 1) {
      add_sums(IsToken<T>{values + first, target[t]});
    } else {
      T* part = thread_buffer<T>(0, width);
      std::fill_n(part, width, T(0));
      for (const Holder<T>& holder : own) part[holder.slot - first] = holder.part;
      add_sums(PartOfSlot<T>{part});
    }
    Best<T> here{nearest[t], product[t]};
    for (const Holder<T>& holder : own) here.meet(holder.slot, scores[holder.slot - first]);
  };
  for_each_score_block(ctx, store, settings, queries.data<T>(), positions, visit_scores);
  for (std::int64_t t = 0; t < positions; ++t) {
    for (std::int64_t s = 0; s < beta_count; ++s) {
      const Sums<T>& one = sums[static_cast<std::size_t>(t * beta_count + s)];
      target_prob[s * positions + t] = one.all > 0 ? one.matching / one.all : T(0);
    }
  }
}

template <typename T>
void mix_shares(const MemorySettings& settings, const Matches& found, const Tensor& targets, Tensor& shares,
                Tensor& nll) {
  const std::int64_t positions = targets.dim(0), beta_count = static_cast<std::int64_t>(settings.beta.size());
  const std::int64_t all = beta_count * shares_each;
  const std::int32_t* target = targets.data<std::int32_t>();
  const T* target_prob = found.target_prob.data<T>();
  T* weight = shares.data<T>();
  T* loss = nll.data<T>();
  const T kept = static_cast<T>(1 - settings.switch_rate),
          given = static_cast<T>(settings.switch_rate / static_cast<double>(all));
  std::array<T, max_betas * shares_each> part;
  for (std::int64_t t = 0; t < positions; ++t) {
    if (target[t] < 0) continue;
    // Keeps the logarithm finite if neither model nor memory expects the target at all.
    const T model = std::max(std::exp(-loss[t]), std::numeric_limits<T>::min());
    T answer = 0;
    for (std::int64_t s = 0; s < beta_count; ++s) {
      const T memory = target_prob[s * positions + t];
      for (std::int64_t j = 0; j < shares_each; ++j) {
        const T share = static_cast<T>(mixture_shares[static_cast<std::size_t>(j)]);
        const auto at = static_cast<std::size_t>(s * shares_each + j);
        part[at] = weight[at] * ((T(1) - share) * model + share * memory);
        answer += part[at];
      }
    }
    for (std::int64_t i = 0; i < all; ++i) weight[i] = kept * (part[static_cast<std::size_t>(i)] / answer) + given;
    loss[t] = -std::log(answer);
  }
}

template <typename T>
void weigh_slots(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                 const Tensor& memory_weights, Tensor& weights) {
  const std::int64_t rows = queries.dim(0), reach = store.reach;
  const std::int64_t beta_count = static_cast<std::int64_t>(settings.beta.size());
  if (reach == 0) return;
  ArenaScope scope(*ctx.arena);
  const T* mass = masses<T>(ctx, store, settings);
  T* out = weights.data<T>();
  T* scores = ctx.scratch({rows, reach}, dtype_of<T>()).template data<T>();
  const T* memory_weight = memory_weights.data<T>();
  const IsToken<T> no_token{store.values.data<std::int32_t>(), -1};
  score(ctx, store, queries.data<T>(), rows, 0, reach, scores);
  parallel_chunks(*ctx.threads, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = scores + r * reach;
      T* result = out + r * reach;
      std::fill_n(result, reach, T(0));
      const T highest = highest_score(row, reach, NotEmpty<T>{mass});
      if (highest == std::numeric_limits<T>::lowest()) continue;
      for (std::int64_t s = 0; s < beta_count; ++s) {
        const T beta = static_cast<T>(settings.beta[static_cast<std::size_t>(s)]);
        const Sums<T> sums = sums_of(row, mass, reach, beta, highest, no_token);
        const T factor = memory_weight[r * beta_count + s] / sums.all;
#pragma omp simd
        for (std::int64_t m = 0; m < reach; ++m) result[m] += factor * mass[m] * fast_exp(beta * row[m] - sums.shift);
      }
    }
  });
}

// The same if a row searches only some partitions; all other slots have weight 0.
template <typename T>
void weigh_partitions(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                      const Tensor& memory_weights, Tensor& weights) {
  const std::int64_t rows = queries.dim(0), reach = store.reach, size = store.partition_size();
  const std::int64_t beta_count = static_cast<std::int64_t>(settings.beta.size());
  const std::int64_t nprobe = partitions_to_search(store, settings);
  ArenaScope scope(*ctx.arena);
  const T* mass = masses<T>(ctx, store, settings);
  const T* memory_weight = memory_weights.data<T>();
  const std::vector<std::int32_t> searched = choose_partitions(ctx, store, queries.data<T>(), rows, nprobe);
  const PartitionVisits<T> visits = make_visits(ctx, store, queries.data<T>(), searched, nprobe);
  T* scores = ctx.scratch({std::max<std::int64_t>(visits.count(), 1), size}, dtype_of<T>()).template data<T>();
  score_partitions(ctx, store, visits, 0, size, scores);
  parallel_chunks(*ctx.threads, rows, 1, [&](std::int64_t r, std::int64_t) {
    T* result = weights.data<T>() + r * reach;
    std::fill_n(result, reach, T(0));
    const auto for_parts = [&](auto work) {
      for (std::int64_t i = r * nprobe; i < (r + 1) * nprobe; ++i) {
        const auto at = static_cast<std::size_t>(i);
        work(scores + visits.place[at] * size, searched[at] * size);
      }
    };
    T highest = std::numeric_limits<T>::lowest();
    for_parts([&](const T* row, std::int64_t first) {
      highest = std::max(highest, highest_score(row, size, NotEmpty<T>{mass + first}));
    });
    if (highest == std::numeric_limits<T>::lowest()) return;
    for (std::int64_t s = 0; s < beta_count; ++s) {
      const T beta = static_cast<T>(settings.beta[static_cast<std::size_t>(s)]);
      T all = 0;
      for_parts([&](const T* row, std::int64_t first) {
        const IsToken<T> no_token{store.values.data<std::int32_t>() + first, -1};
        all += sums_of(row, mass + first, size, beta, highest, no_token).all;
      });
      const T factor = memory_weight[r * beta_count + s] / all, shift = beta * highest;
      for_parts([&](const T* row, std::int64_t first) {
        for (std::int64_t m = 0; m < size; ++m)
          result[first + m] += factor * mass[first + m] * fast_exp(beta * row[m] - shift);
      });
    }
  });
}

// Refinement: finds the slot with the largest score, key product plus a bonus for the token's fraction of the slot. The
// lower slot among equals.
template <typename T>
void assign_slots_of(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                     const Tensor& targets, Tensor& assigned_slots) {
  const std::int64_t positions = queries.dim(0);
  const bool only_holders = store.entries() == 1;  // a slot with one entry cannot hold another token
  const std::int32_t* target = targets.data<std::int32_t>();
  const T* counts = store.counts.data<T>();
  std::int32_t* assigned = assigned_slots.data<std::int32_t>();
  std::fill_n(assigned, positions, -1);
  std::vector<T> best(static_cast<std::size_t>(positions));
  const TargetSlots<T> holders(ctx, store, settings, targets);
  const auto visit_scores = [&](std::int64_t t, const T* scores, std::int64_t first, std::int64_t width) {
    if (target[t] < 0) return;
    Best<T> here{assigned[t], best[static_cast<std::size_t>(t)]};
    for (const Holder<T>& holder : holders.of(t, first, width))
      here.meet(holder.slot, scores[holder.slot - first] + static_cast<T>(token_affinity) * holder.part);
    if (only_holders) return;
    // Slots that do not hold the token are scored by their key only, so only the nearest slot can win. It may itself be
    // a holder, which is harmless: a holder's score is at least its key product.
    here.consider_all(scores, first, width, NotEmpty<T>{counts + first});
  };
  for_each_score_block(ctx, store, settings, queries.data<T>(), positions, visit_scores);
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
            const Tensor& targets, Matches& found) {
  with_precision(ctx, [&](auto zero) { search_store<decltype(zero)>(ctx, store, settings, queries, targets, found); });
}

void assign_slots(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& targets, Tensor& assigned_slots) {
  with_precision(
      ctx, [&](auto zero) { assign_slots_of<decltype(zero)>(ctx, store, settings, queries, targets, assigned_slots); });
}

void mix(Context& ctx, const MemorySettings& settings, const Matches& found, const Tensor& targets, Tensor& shares,
         Tensor& nll) {
  with_precision(ctx, [&](auto zero) { mix_shares<decltype(zero)>(settings, found, targets, shares, nll); });
}

void search_and_mix_concurrently(Context& ctx, Mixing&, const Store& store, const MemorySettings& settings,
                                 const Tensor& queries, const Tensor& targets, Matches& found, Tensor& shares,
                                 Tensor& nll) {
  cpu::search(ctx, store, settings, queries, targets, found);
  cpu::mix(ctx, settings, found, targets, shares, nll);
}

void finish_mixing(Context&, const Mixing&) {}

void split_windows(Context&, const Store&, const Tensor&, std::span<const Rows>, std::vector<Matches>&) {}

void slot_weights(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& memory_weights, Tensor& weights) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    if (searches_some_partitions(store, settings))
      weigh_partitions<T>(ctx, store, settings, queries, memory_weights, weights);
    else
      weigh_slots<T>(ctx, store, settings, queries, memory_weights, weights);
  });
}

}  // namespace some::cpu
