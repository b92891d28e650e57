// The additive sums of spec 4 on the CPU. Choices are sorted by (expert, slot), so that each sum has one owner and is
// accumulated in token order, independent of the number of threads; in double precision, rounded once per call.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "keys/key_store.h"

namespace some::cpu {
namespace {

// Returns the number of items per chunk. Large work is split into many chunks, because experts are used unevenly. Each
// item is summed separately, so the chunk size affects only speed.
std::int64_t grain(std::int64_t items, std::int64_t work) {
  const std::int64_t pieces = std::clamp<std::int64_t>(work / (1 << 15), 1, 256);
  return (items + pieces - 1) / pieces;
}

struct Choices {  // the participating tokens of each (expert, slot), in order
  std::int64_t slots = 0;
  std::int64_t positions = 0;
  Tensor rows;     // i32 [P]: rows that take part
  Tensor offsets;  // i32 [E*slots + 1]
  Tensor tokens;   // i32 [P*slots], sorted by expert, slot, token
};

Choices sort_choices(Context& ctx, const LayerChoices& layer, const Tensor* targets, std::int64_t experts) {
  const Routing& routing = layer.routing;
  const std::int64_t rows = routing.indices.dim(0), slots = routing.indices.dim(1);
  Choices choices;
  choices.slots = slots;
  choices.rows = ctx.scratch({rows}, DType::i32);
  choices.offsets = ctx.scratch({experts * slots + 1}, DType::i32);
  choices.tokens = ctx.scratch({rows * slots}, DType::i32);
  std::int32_t* taking = choices.rows.data<std::int32_t>();
  const std::int32_t* target = targets != nullptr ? targets->data<std::int32_t>() : nullptr;
  for (std::int64_t t = 0; t < rows; ++t) {
    if (target != nullptr && target[t] < 0) continue;
    if (!layer.plan.takes_part(layer.first_position + t)) continue;
    taking[choices.positions++] = static_cast<std::int32_t>(t);
  }
  const std::int32_t* index = routing.indices.data<std::int32_t>();
  std::int32_t* offset = choices.offsets.data<std::int32_t>();
  std::fill_n(offset, experts * slots + 1, 0);
  for (std::int64_t p = 0; p < choices.positions; ++p) {
    for (std::int64_t i = 0; i < slots; ++i) {
      const std::int64_t e = index[taking[p] * slots + i];
      if (e < 0 || e >= experts)
        failed(Code::index_out_of_range, "token {} chose expert {}, but there are {} (counted from 0)", taking[p], e,
               experts);
      ++offset[e * slots + i];
    }
  }
  std::int32_t total = 0;
  for (std::int64_t b = 0; b <= experts * slots; ++b) total += std::exchange(offset[b], total);
  std::int32_t* token = choices.tokens.data<std::int32_t>();
  for (std::int64_t p = 0; p < choices.positions; ++p) {
    for (std::int64_t i = 0; i < slots; ++i) token[offset[index[taking[p] * slots + i] * slots + i]++] = taking[p];
  }
  for (std::int64_t b = experts * slots; b > 0; --b) offset[b] = offset[b - 1];  // the fill moved each start to its end
  offset[0] = 0;
  return choices;
}

// sums += the queries of `count` tokens; four at a time, so that the chain of additions is not the bottleneck.
template <typename T>
void add_queries(const T* query, std::int64_t d, const std::int32_t* tokens, std::int64_t count, double* running,
                 T* sums) {
  std::fill_n(running, d, 0.0);
  std::int64_t n = 0;
  for (; n + 4 <= count; n += 4) {
    const T *a = query + tokens[n] * d, *b = query + tokens[n + 1] * d, *c = query + tokens[n + 2] * d,
            *f = query + tokens[n + 3] * d;
    for (std::int64_t j = 0; j < d; ++j) {
      running[j] += (static_cast<double>(a[j]) + static_cast<double>(b[j])) +
                    (static_cast<double>(c[j]) + static_cast<double>(f[j]));
    }
  }
  for (; n < count; ++n) {
    const T* a = query + tokens[n] * d;
    for (std::int64_t j = 0; j < d; ++j) running[j] += static_cast<double>(a[j]);
  }
  for (std::int64_t j = 0; j < d; ++j) sums[j] = static_cast<T>(static_cast<double>(sums[j]) + running[j]);
}

template <typename T>
void add_slot_sums(Context& ctx, const Tensor& query, const Choices& choices, std::int64_t experts, bool queries,
                   KeySums& sums) {
  const std::int64_t d = query.dim(1), slots = choices.slots, top_k = sums.slot_counts.dim(1);
  const std::int32_t *offset = choices.offsets.data<std::int32_t>(), *token = choices.tokens.data<std::int32_t>();
  parallel_chunks(*ctx.threads, experts * slots, grain(experts * slots, choices.positions * slots * d),
                  [&](std::int64_t begin, std::int64_t end) {
                    std::vector<double> running(static_cast<std::size_t>(d));
                    for (std::int64_t b = begin; b < end; ++b) {
                      const std::int64_t count = offset[b + 1] - offset[b];
                      if (count == 0) continue;
                      const std::int64_t place = b / slots * top_k + b % slots;
                      sums.slot_counts.data<std::int32_t>()[place] += static_cast<std::int32_t>(count);
                      if (!queries) continue;
                      add_queries(query.data<T>(), d, token + offset[b], count, running.data(),
                                  sums.query_sums.data<T>() + place * d);
                    }
                  });
}

// Computes gate sums and counts of experts chosen together: each expert writes its own row.
template <typename T>
void add_expert_sums(Context& ctx, const Routing& routing, const Choices& choices, std::int64_t experts, bool pairs,
                     KeySums& sums) {
  const std::int64_t slots = choices.slots;
  const std::int32_t *offset = choices.offsets.data<std::int32_t>(), *token = choices.tokens.data<std::int32_t>();
  const std::int32_t* index = routing.indices.data<std::int32_t>();
  const T* gate = routing.gates.data<T>();
  const auto add_expert = [&](std::int64_t e) {
    std::int32_t* together = pairs ? sums.together.data<std::int32_t>() + e * experts : nullptr;
    double weight = 0.0;
    for (std::int64_t i = 0; i < slots; ++i) {
      for (std::int32_t n = offset[e * slots + i]; n < offset[e * slots + i + 1]; ++n) {
        const std::int64_t first = token[n] * slots;
        weight += static_cast<double>(gate[first + i]);
        if (!pairs) continue;
        for (std::int64_t other = 0; other < slots; ++other) ++together[index[first + other]];
      }
    }
    if (pairs) together[e] = 0;  // e paired with itself was counted too
    T& sum = sums.gate_sums.data<T>()[e];
    sum = static_cast<T>(static_cast<double>(sum) + weight);
  };
  parallel_chunks(*ctx.threads, experts, grain(experts, choices.positions * slots * slots),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t e = begin; e < end; ++e) add_expert(e);
                  });
}

// Keeps the E smallest priorities of the previous sample and this call.
template <typename T>
void add_sample(Context& ctx, const LayerChoices& layer, const Choices& choices, KeySums& sums) {
  const Tensor& query = layer.query;
  const PhoenixRule::Plan& plan = layer.plan;
  const std::int64_t d = query.dim(1), room = sums.sample_priority.elements();
  std::int64_t* priority = sums.sample_priority.data<std::int64_t>();
  using Candidate = std::pair<std::int64_t, std::int64_t>;  // priority; index in the previous sample, or room + row
  std::vector<Candidate> candidates;
  candidates.reserve(static_cast<std::size_t>(room + choices.positions));
  for (std::int64_t n = 0; n < room && priority[n] != kNoSample; ++n) candidates.emplace_back(priority[n], n);
  const std::int32_t* taking = choices.rows.data<std::int32_t>();
  for (std::int64_t p = 0; p < choices.positions; ++p) {
    candidates.emplace_back(sample_priority(plan.sample, layer.first_position + taking[p]), room + taking[p]);
  }
  const auto kept = candidates.begin() + std::min<std::int64_t>(room, static_cast<std::int64_t>(candidates.size()));
  std::partial_sort(candidates.begin(), kept, candidates.end());
  Tensor before = ctx.scratch({room, d}, dtype_of<T>());
  before.copy_from(sums.sample_queries);
  T* target = sums.sample_queries.data<T>();
  for (auto candidate = candidates.begin(); candidate != kept; ++candidate, target += d) {
    const std::int64_t source = candidate->second;
    const T* row = source < room ? before.data<T>() + source * d : query.data<T>() + (source - room) * d;
    std::copy_n(row, d, target);
    *priority++ = candidate->first;
  }
}

template <typename T>
void add(Context& ctx, const LayerChoices& layer, const Tensor* targets) {
  ArenaScope scope(*ctx.arena);
  KeySums& sums = *layer.sums;
  const Needs& needs = layer.plan.needs;
  const std::int64_t experts = sums.slot_counts.dim(0);
  const Choices choices = sort_choices(ctx, layer, targets, experts);
  sums.positions.data<std::int64_t>()[0] += choices.positions;
  add_slot_sums<T>(ctx, layer.query, choices, experts, needs.query_sums, sums);
  add_expert_sums<T>(ctx, layer.routing, choices, experts, needs.together, sums);
  if (needs.sample) add_sample<T>(ctx, layer, choices, sums);
}

void clear(KeySums& sums) {
  for (Tensor* tensor :
       {&sums.slot_counts, &sums.gate_sums, &sums.positions, &sums.query_sums, &sums.together, &sums.sample_queries}) {
    if (*tensor) tensor->zero();
  }
  if (sums.sample_priority)
    std::fill_n(sums.sample_priority.data<std::int64_t>(), sums.sample_priority.elements(), kNoSample);
}

template <typename T>
void merge_two(Context& ctx, const KeySums& earlier, KeySums& sums) {
  const ArenaScope scope(*ctx.arena);
  const std::int64_t room = sums.sample_priority.elements(), d = sums.sample_queries.dim(1);
  Tensor own_priority = ctx.scratch({room}, DType::i64), own_queries = ctx.scratch({room, d}, dtype_of<T>());
  own_priority.copy_from(sums.sample_priority);
  own_queries.copy_from(sums.sample_queries);
  const std::int64_t *first = earlier.sample_priority.data<std::int64_t>(), *second = own_priority.data<std::int64_t>();
  const T *first_row = earlier.sample_queries.data<T>(), *second_row = own_queries.data<T>();
  for (std::int64_t place = 0; place < room; ++place) {
    // Neither list is exhausted before all places are filled: each has `room` entries.
    const bool from_first = *first <= *second;
    sums.sample_priority.data<std::int64_t>()[place] = from_first ? *first : *second;
    std::copy_n(from_first ? first_row : second_row, d, sums.sample_queries.data<T>() + place * d);
    (from_first ? first : second) += 1;
    (from_first ? first_row : second_row) += d;
  }
}

}  // namespace

void merge_samples(Context& ctx, const KeySums& earlier, KeySums& sums) {
  if (sums.sample_queries.dtype() == DType::f64) {
    merge_two<double>(ctx, earlier, sums);
  } else {
    merge_two<float>(ctx, earlier, sums);
  }
}

void clear_key_sums(Context&, std::span<KeySums> layers) {
  for (KeySums& sums : layers) clear(sums);
}

void add_key_sums(Context& ctx, std::span<const LayerChoices> layers, const Tensor* targets) {
  check_key_choices(layers, targets);
  for (const LayerChoices& layer : layers) {
    if (layer.query.dim(0) == 0) continue;
    if (layer.query.dtype() == DType::f64) {
      add<double>(ctx, layer, targets);
    } else {
      add<float>(ctx, layer, targets);
    }
  }
}

}  // namespace some::cpu
