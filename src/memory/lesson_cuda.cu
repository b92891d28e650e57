// The memory's lesson on the GPU, with one block per position for hits, legacies and births; and how it settles.
// Nothing is read back to the host.
#include "memory/entries.h"
#include "memory/store_cuda.cuh"
#include "ops/segment_sums.h"

namespace some::memory::cuda {
namespace {

// Learning 1 of spec 8. Also numbers the slots, which are sorted by usage later, and marks none of them as gone.
__global__ void __launch_bounds__(threads)
    decay_kernel(float* usage, std::int32_t* numbers, bool* gone, std::int64_t count, float kept) {
  after_previous();
  const std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (m >= count) return;
  usage[m] *= kept;
  numbers[m] = static_cast<std::int32_t>(m);
  gone[m] = false;
}

struct Lesson {
  const float *queries, *product;
  const std::int32_t *targets, *nearest;
  const long long* places;
  float *keys, *counts, *usage, *tallies;
  std::int32_t *values, *fates;
  long long *born, *hit;
  std::int64_t slots;
  float match;
  int d, entries;

  __device__ Entries<float, long long> entries_of(std::int32_t slot) const {
    return {values + slot, tallies + slot, born + slot, hit + slot, slots, entries};
  }

  __device__ bool is_hit(int t) const { return targets[t] >= 0 && nearest[t] >= 0 && product[t] > match; }
  __device__ bool is_miss(int t) const { return targets[t] >= 0 && !(nearest[t] >= 0 && product[t] > match); }
};

constexpr int most_words = static_cast<int>(most_window / warp_size);
constexpr int usage_bits = 31;  // floats that are not negative have the order of their bits

// A group of positions that must be handled together, one bit each. The block of its first member does all the work.
struct Group {
  unsigned* words;
  int first_word, count;

  // Collects the positions for which `same` holds; returns whether t is the first of them. All threads must call it.
  template <typename Same>
  __device__ bool collect(int t, int positions, const Same& same) {
    bool earlier = false;
    for (int base = 0; base < positions; base += threads) {
      const int other = base + static_cast<int>(threadIdx.x);
      const bool is_same = other < positions && same(other);
      earlier = earlier || (is_same && other < t);
      const unsigned word = __ballot_sync(full_warp, is_same);
      if (threadIdx.x % warp_size == 0 && other < positions) words[other / warp_size] = word;
    }
    first_word = t / warp_size;
    count = (positions + warp_size - 1) / warp_size;
    return !__syncthreads_or(earlier);
  }
  // Calls work(position) for every member, in order.
  template <typename Work>
  __device__ void each(const Work& work) const {
    for (int w = first_word; w < count; ++w) {
      for (unsigned left = words[w]; left != 0; left &= left - 1)
        work(w * warp_size + __ffs(static_cast<int>(left)) - 1);
    }
  }
};

// key = normalize((inertia * key + sum) / total), where sum(c) returns column c of the sum.
template <typename Sum>
__device__ void move_key(float* key, float inertia, float total, int d, float* partial, const Sum& sum) {
  float square = 0.0f;
  for (int c = threadIdx.x; c < d; c += threads) {
    const float moved = (inertia * key[c] + sum(c)) / total;
    key[c] = moved;
    square = fmaf(moved, moved, square);
  }
  const float inverse = 1.0f / fmaxf(sqrtf(block_sum(square, partial)), shortest);
  for (int c = threadIdx.x; c < d; c += threads) key[c] *= inverse;
}

// One block per position: the first position that hit a slot moves its key, for all that did, in their order.
__global__ void __launch_bounds__(threads) hits_kernel(Lesson lesson) {
  after_previous();
  __shared__ unsigned together[most_words];
  __shared__ float partial[warp_size];
  const int t = blockIdx.x, positions = gridDim.x, d = lesson.d;
  if (!lesson.is_hit(t)) return;
  const std::int32_t slot = lesson.nearest[t];
  if (threadIdx.x == 0) lesson.fates[t] = slot;
  Group group{together, 0, 0};
  if (!group.collect(t, positions, [&](int other) { return lesson.is_hit(other) && lesson.nearest[other] == slot; }))
    return;
  int hits = 0, latest = t;
  for (int w = group.first_word; w < group.count; ++w) {
    hits += __popc(together[w]);
    if (together[w] != 0) latest = w * warp_size + 31 - __clz(static_cast<int>(together[w]));
  }
  const float inertia = lesson.counts[slot], more = static_cast<float>(hits), total = inertia + more;
  move_key(lesson.keys + static_cast<std::int64_t>(slot) * d, inertia, total, d, partial, [&](int c) {
    float sum = 0.0f;
    group.each([&](int other) { sum += lesson.queries[static_cast<std::int64_t>(other) * d + c]; });
    return sum;
  });
  if (threadIdx.x != 0) return;
  lesson.counts[slot] = total;
  lesson.usage[slot] += more;
  if (lesson.entries == 1) {
    lesson.hit[slot] = lesson.places[latest];
  } else {
    const auto entries = lesson.entries_of(slot);
    group.each([&](int other) { entries.found(lesson.targets[other], lesson.places[other]); });
  }
}

// What the slots that give way leave behind; row j belongs to the j-th slot of `order`.
struct Legacy {
  float* keys;                    // [T, d]
  std::int32_t *leaving, *heirs;  // [T]: slots, or -1
  float* nearness;                // [T]: of the heir
  bool* gone;                     // for every candidate, whether it gives way
};

// One block per position: the j-th slot of `order` gives way if there are more than j births, and leaves something if
// it holds something.
__global__ void __launch_bounds__(threads)
    leaving_kernel(Lesson lesson, Legacy legacy, const std::int32_t* order, std::int64_t candidates) {
  after_previous();
  const int j = blockIdx.x, positions = gridDim.x, d = lesson.d;
  int misses = 0;
  for (int base = 0; base < positions; base += threads) {
    const int other = base + static_cast<int>(threadIdx.x);
    misses += __syncthreads_count(other < positions && lesson.is_miss(other));
  }
  const bool gives_way = j < misses && j < candidates && order[j] >= 0;
  const std::int32_t slot = gives_way ? order[j] : -1;
  const bool leaves = gives_way && lesson.counts[slot] > 0.0f;
  for (int c = threadIdx.x; c < d; c += threads)
    legacy.keys[static_cast<std::int64_t>(j) * d + c] =
        leaves ? lesson.keys[static_cast<std::int64_t>(slot) * d + c] : 0.0f;
  if (threadIdx.x != 0) return;
  if (gives_way) legacy.gone[slot] = true;
  legacy.leaving[j] = leaves ? slot : -1;
  legacy.heirs[j] = -1;
  legacy.nearness[j] = 0.0f;
}

// One block per row looks for an heir among some slots, by the scores of what is left with these slots.
__global__ void __launch_bounds__(threads) heirs_kernel(Lesson lesson, Legacy legacy, Scores scores) {
  after_previous();
  __shared__ Near nearest_of[warps];
  const int j = blockIdx.x;
  const std::int32_t slot = legacy.leaving[j];
  if (slot < 0) return;
  const std::int32_t token = lesson.values[slot];
  Near mine = nothing_near();
  for (int which = 0; which < scores.looks(); ++which) {
    const float* row = nullptr;
    std::int32_t first = 0;
    if (!scores.of_row(j, which, row, first)) continue;
    for (int m = threadIdx.x; m < scores.width; m += threads) {
      const std::int32_t other = first + m;
      if (!(lesson.counts[other] > 0.0f) || legacy.gone[other]) continue;
      if (lesson.entries > 1 || lesson.values[other] == token) mine.consider({row[m], other});
    }
  }
  mine = block_nearest(mine, nearest_of);
  if (threadIdx.x != 0) return;
  Near found{legacy.nearness[j], legacy.heirs[j]};
  found.consider(mine);
  legacy.heirs[j] = found.slot;
  legacy.nearness[j] = found.product;
}

// One block per row: the first row of an heir hands over what all its rows leave, in their order.
__global__ void __launch_bounds__(threads) inherit_kernel(Lesson lesson, Legacy legacy) {
  after_previous();
  __shared__ unsigned together[most_words];
  __shared__ float partial[warp_size];
  const int j = blockIdx.x, positions = gridDim.x, d = lesson.d;
  const std::int32_t heir = legacy.heirs[j];
  if (heir < 0) return;
  Group group{together, 0, 0};
  if (!group.collect(j, positions, [&](int other) { return legacy.heirs[other] == heir; })) return;
  const float inertia = lesson.counts[heir];
  float total = inertia, used = lesson.usage[heir];
  group.each([&](int other) {
    total += lesson.counts[legacy.leaving[other]];
    used += lesson.usage[legacy.leaving[other]];
  });
  move_key(lesson.keys + static_cast<std::int64_t>(heir) * d, inertia, total, d, partial, [&](int c) {
    float sum = 0.0f;
    group.each([&](int other) {
      sum = fmaf(lesson.counts[legacy.leaving[other]], legacy.keys[static_cast<std::int64_t>(other) * d + c], sum);
    });
    return sum;
  });
  if (threadIdx.x != 0) return;
  const auto entries = lesson.entries_of(heir);
  group.each([&](int other) { entries.take_all(lesson.entries_of(legacy.leaving[other])); });
  lesson.counts[heir] = entries.total();
  lesson.usage[heir] = used;
}

// One block per position: the j-th position that missed is born in the j-th slot of `order`.
__global__ void __launch_bounds__(threads)
    births_kernel(Lesson lesson, const std::int32_t* order, std::int64_t candidates) {
  after_previous();
  const int t = blockIdx.x, d = lesson.d;
  if (!lesson.is_miss(t)) {
    if (threadIdx.x == 0 && lesson.targets[t] < 0) lesson.fates[t] = no_fate;
    return;
  }
  int before = 0;
  for (int base = 0; base < t; base += threads) {
    const int other = base + static_cast<int>(threadIdx.x);
    before += __syncthreads_count(other < t && lesson.is_miss(other));
  }
  const std::int32_t slot = before < candidates ? order[before] : -1;
  if (slot < 0) {
    if (threadIdx.x == 0) lesson.fates[t] = no_fate;
    return;
  }
  const float* query = lesson.queries + static_cast<std::int64_t>(t) * d;
  float* key = lesson.keys + static_cast<std::int64_t>(slot) * d;
  for (int c = threadIdx.x; c < d; c += threads) key[c] = query[c];
  if (threadIdx.x == 0) {
    lesson.fates[t] = slot | born_flag | (lesson.counts[slot] > 0.0f ? lost_flag : 0);
    lesson.entries_of(slot).begin(lesson.targets[t], lesson.places[t]);
    lesson.counts[slot] = 1.0f;
    lesson.usage[slot] = 1.0f;
  }
}

// Sort keys that put slots into the order in which they give way, part by part.
__global__ void __launch_bounds__(threads)
    part_usage_kernel(const float* usage, std::int64_t count, std::int64_t part_size, long long* keys) {
  after_previous();
  const std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (m < count) keys[m] = ((m / part_size) << usage_bits) | __float_as_uint(usage[m]);
}

// One block. Each miss takes, from the parts it looks into, the least used slot that no earlier miss has taken; ties go
// to the lower slot, but between empty ones to the nearer part. Every choice depends on the ones before it, so a single
// warp makes them all.
__global__ void __launch_bounds__(threads)
    take_kernel(Lesson lesson, const std::int32_t* looked, int look, int positions, SortedLongs sorted,
                std::int32_t part_size, int parts, std::int32_t* order) {
  after_previous();
  __shared__ unsigned missed[most_words];
  extern __shared__ std::int32_t next[];  // of each part
  for (int base = 0; base < positions; base += threads) {
    const int t = base + static_cast<int>(threadIdx.x);
    const unsigned word = __ballot_sync(full_warp, t < positions && lesson.is_miss(t));
    if (threadIdx.x % warp_size == 0 && t < positions) missed[t / warp_size] = word;
    if (t < positions) order[t] = -1;
  }
  for (int p = threadIdx.x; p < parts; p += threads) next[p] = 0;
  __syncthreads();
  if (threadIdx.x >= warp_size) return;
  constexpr unsigned long long none = ~0ull;
  const int lane = threadIdx.x;
  int births = 0;
  for (int w = 0; w < (positions + warp_size - 1) / warp_size; ++w) {
    for (unsigned left = missed[w]; left != 0; left &= left - 1, ++births) {
      const int t = w * warp_size + __ffs(static_cast<int>(left)) - 1;
      unsigned long long best = none;  // ordered by usage, then by slot; empty ones by how far away the part is
      std::int32_t slot = -1, part = -1;
      for (int i = lane; i < look; i += warp_size) {
        const std::int32_t own = looked[static_cast<std::int64_t>(t) * look + i];
        if (own < 0 || next[own] == part_size) continue;
        const std::int64_t at = static_cast<std::int64_t>(own) * part_size + next[own];
        const auto usage = static_cast<unsigned long long>(sorted.keys[at]) & ((1ull << usage_bits) - 1);
        const std::int32_t candidate = sorted.items[at];
        const auto mine = (usage << 32) | static_cast<unsigned>(usage == 0 ? i : candidate);
        if (mine < best) {
          best = mine;
          slot = candidate;
          part = own;
        }
      }
      unsigned long long least = best;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        const unsigned long long other = __shfl_xor_sync(full_warp, least, offset);
        least = other < least ? other : least;
      }
      if (least != none && best == least) {
        order[births] = slot;
        ++next[part];
      }
      __syncwarp();
    }
  }
}

// One block per position: the first position taken into a part moves its centre, for all that were, in their order.
__global__ void __launch_bounds__(threads) centres_kernel(Lesson lesson, float* centres, std::int32_t part_size) {
  after_previous();
  __shared__ unsigned together[most_words];
  const int t = blockIdx.x, positions = gridDim.x, d = lesson.d;
  const auto part_of = [&](int other) {
    const std::int32_t fate = lesson.fates[other];
    return fate == no_fate ? -1 : (fate & ~(born_flag | lost_flag)) / part_size;
  };
  const std::int32_t part = part_of(t);
  if (part < 0) return;
  Group group{together, 0, 0};
  if (!group.collect(t, positions, [&](int other) { return part_of(other) == part; })) return;
  for (int c = threadIdx.x; c < d; c += threads) {
    float sum = 0.0f;
    group.each([&](int other) { sum += lesson.queries[static_cast<std::int64_t>(other) * d + c]; });
    centres[static_cast<std::int64_t>(part) * d + c] += sum;
  }
}

// One block per part counts how many of its slots hold something.
__global__ void __launch_bounds__(threads)
    used_kernel(const float* counts, std::int32_t part_size, std::int32_t* used) {
  after_previous();
  const float* own = counts + static_cast<std::int64_t>(blockIdx.x) * part_size;
  int sum = 0;
  for (int base = 0; base < part_size; base += threads) {
    const int m = base + static_cast<int>(threadIdx.x);
    sum += __syncthreads_count(m < part_size && own[m] > 0.0f);
  }
  if (threadIdx.x == 0) used[blockIdx.x] = sum;
}

// Slots that leave nothing behind need no heir, so they look into no part.
__global__ void __launch_bounds__(threads)
    look_nowhere_kernel(const std::int32_t* leaving, std::int64_t pairs, int look, std::int32_t* looked) {
  after_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < pairs && leaving[i / look] < 0) looked[i] = -1;
}

// Finds heirs for the slots that give way, and hands over to them what those slots hold.
void pass_on(Context& ctx, const Store& store, const MemorySettings& settings, const Lesson& lesson,
             const std::int32_t* order, std::int64_t candidates, std::int64_t positions, bool* gone) {
  const std::int64_t d = lesson.d;
  const Legacy legacy{floats(ctx.scratch({positions, d}, DType::f32)), ints(ctx.scratch({positions}, DType::i32)),
                      ints(ctx.scratch({positions}, DType::i32)), floats(ctx.scratch({positions}, DType::f32)), gone};
  const dim3 each(static_cast<unsigned>(positions));
  leaving_kernel<<<each, threads, 0, ctx.cuda->stream>>>(lesson, legacy, order, candidates);
  SOME_CUDA_CHECK(cudaGetLastError());
  const auto consider = [&](const Scores& scores) {
    launch_behind(ctx, heirs_kernel, each, dim3(threads), 0, lesson, legacy, scores);
  };
  if (looks_into_some(store, settings)) {
    const auto look = static_cast<int>(parts_to_look_into(store, settings));
    std::int32_t* looked = choose_parts(ctx, store, legacy.keys, positions, look);
    launch_behind(ctx, look_nowhere_kernel, dim3(grid_for(positions * look, threads)), dim3(threads), 0, legacy.leaving,
                  positions * look, look, looked);
    const Visits visits = visits_of(ctx, store, looked, positions, look);
    const std::int64_t size = store.part_size(), widest = slots_of_part_at_once(size, visits.count);
    float* scores = floats(ctx.scratch({visits.count, widest}, DType::f32));
    for (std::int64_t first = 0; first < size; first += widest) {
      const std::int64_t width = std::min(size - first, widest);
      score_parts(ctx, store, legacy.keys, visits, first, width, scores);
      consider({scores, static_cast<std::int32_t>(first), static_cast<std::int32_t>(width), visits});
    }
  } else {
    float* scores = floats(ctx.scratch({positions, std::min(store.reach, slots_at_once)}, DType::f32));
    for (std::int64_t first = 0; first < store.reach; first += slots_at_once) {
      const std::int64_t last = std::min(store.reach, first + slots_at_once);
      score(ctx, store, legacy.keys, positions, first, last, scores);
      consider({scores, static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - first), {}});
    }
  }
  launch_behind(ctx, inherit_kernel, each, dim3(threads), 0, lesson, legacy);
}

// The slots that misses take, in a store of several parts: [positions], with -1 for none.
const std::int32_t* slots_used_least(Context& ctx, const Store& store, const MemorySettings& settings,
                                     const Lesson& lesson, const std::int32_t* numbers, std::int64_t positions) {
  const std::int64_t size = store.part_size(), begun = store.parts_begun();
  const auto look = static_cast<int>(parts_to_look_into(store, settings));
  long long* keys = longs(ctx.scratch({store.reach}, DType::i64));
  std::int32_t* order = ints(ctx.scratch({positions}, DType::i32));
  const std::int32_t* looked = choose_parts(ctx, store, lesson.queries, positions, look);
  launch_behind(ctx, part_usage_kernel, dim3(grid_for(store.reach, threads)), dim3(threads), 0, lesson.usage,
                store.reach, size, keys);
  const SortedLongs sorted = sort_pairs(ctx, keys, numbers, store.reach, usage_bits + bits_for(begun));
  take_kernel<<<1, threads, static_cast<std::size_t>(begun) * sizeof(std::int32_t), ctx.cuda->stream>>>(
      lesson, looked, look, static_cast<int>(positions), sorted, static_cast<std::int32_t>(size),
      static_cast<int>(begun), order);
  SOME_CUDA_CHECK(cudaGetLastError());
  return order;
}

// Moves the centres towards what was taken in. As long as some parts have not begun, the host needs to know how full
// the others are.
void tend_parts(Context& ctx, const Lesson& lesson, std::int64_t positions, Store& store) {
  const auto size = static_cast<std::int32_t>(store.part_size());
  launch_behind(ctx, centres_kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0, lesson,
                floats(store.centres), size);
  if (store.reach == store.slots()) return;
  const std::int64_t begun = store.parts_begun();
  const Tensor used = ctx.scratch({begun}, DType::i32);
  launch_behind(ctx, used_kernel, dim3(static_cast<unsigned>(begun)), dim3(threads), 0, floats(store.counts), size,
                ints(used));
  const Tensor host = used.to(Device::cpu);
  divide_full_parts(ctx, {host.data<std::int32_t>(), static_cast<std::size_t>(begun)}, store);
}

// Settling: a store whose keys are sums of queries.
struct Draft {
  float *keys, *tallies;
  std::int32_t* values;
  long long *born, *hit;
  std::int64_t slots;
  int d, entries;

  __device__ Entries<float, long long> entries_of(std::int64_t slot) const {
    return {values + slot, tallies + slot, born + slot, hit + slot, slots, entries};
  }
};
Draft draft_of(Store& store) {
  return {floats(store.keys),
          floats(store.tallied()),
          ints(store.values),
          longs(store.born),
          longs(store.hit),
          store.slots(),
          static_cast<int>(store.keys.dim(1)),
          static_cast<int>(store.entries())};
}

// One block per position: the first position with a home brings all that have it, in their order.
__global__ void __launch_bounds__(threads)
    move_in_kernel(Draft draft, const float* queries, const std::int32_t* targets, const long long* places,
                   const std::int32_t* homes) {
  after_previous();
  __shared__ unsigned together[most_words];
  const int t = blockIdx.x, positions = gridDim.x, d = draft.d;
  const std::int32_t home = homes[t];
  if (home < 0) return;
  Group group{together, 0, 0};
  if (!group.collect(t, positions, [&](int other) { return homes[other] == home; })) return;
  for (int c = threadIdx.x; c < d; c += threads) {
    float sum = draft.keys[static_cast<std::int64_t>(home) * d + c];
    group.each([&](int other) { sum += queries[static_cast<std::int64_t>(other) * d + c]; });
    draft.keys[static_cast<std::int64_t>(home) * d + c] = sum;
  }
  if (threadIdx.x != 0) return;
  const auto entries = draft.entries_of(home);
  group.each([&](int other) { entries.meet(targets[other], places[other]); });
}

// One block per part: the sum of what came to its slots.
__global__ void __launch_bounds__(threads) sums_of_parts_kernel(Draft draft, float* centres, std::int64_t part_size) {
  after_previous();
  const std::int64_t first = blockIdx.x * part_size;
  for (int c = threadIdx.x; c < draft.d; c += threads) {
    float sum = 0.0f;
    for (std::int64_t m = first; m < first + part_size; ++m) sum += draft.keys[m * draft.d + c];
    centres[static_cast<std::int64_t>(blockIdx.x) * draft.d + c] = sum;
  }
}

// One block per slot.
__global__ void __launch_bounds__(threads) keys_of_sums_kernel(Draft draft, float* counts, float* usage) {
  after_previous();
  __shared__ float partial[warp_size];
  float* key = draft.keys + static_cast<std::int64_t>(blockIdx.x) * draft.d;
  float square = 0.0f;
  for (int c = threadIdx.x; c < draft.d; c += threads) square = fmaf(key[c], key[c], square);
  const float inverse = 1.0f / fmaxf(sqrtf(block_sum(square, partial)), shortest);
  for (int c = threadIdx.x; c < draft.d; c += threads) key[c] *= inverse;
  if (threadIdx.x == 0) counts[blockIdx.x] = usage[blockIdx.x] = draft.entries_of(blockIdx.x).total();
}

}  // namespace

void learn(Context& ctx, const MemorySettings& settings, const Tensor& queries, const Tensor& targets,
           const Tensor& places, const Found& found, Store& store, Tensor& fates) {
  const std::int64_t positions = queries.dim(0);
  if (positions == 0) return;
  if (positions > most_window) failed("a lesson has {} positions; {} is the most", positions, most_window);
  ArenaScope scope(*ctx.arena);
  const Lesson lesson{floats(queries),
                      floats(found.product),
                      ints(targets),
                      ints(found.nearest),
                      longs(places),
                      floats(store.keys),
                      floats(store.counts),
                      floats(store.usage),
                      floats(store.tallied()),
                      ints(store.values),
                      ints(fates),
                      longs(store.born),
                      longs(store.hit),
                      store.slots(),
                      static_cast<float>(settings.match),
                      static_cast<int>(queries.dim(1)),
                      static_cast<int>(store.entries())};
  // Slots from reach on have usage 0, so it is enough to consider as many of them as there are positions. Parts that
  // have not begun have no candidates.
  const bool one_part = store.parts() == 1;
  const std::int64_t candidates = one_part ? std::min(store.slots(), store.reach + positions) : store.reach;
  std::int32_t* numbers = ints(ctx.scratch({candidates}, DType::i32));
  bool* gone = static_cast<bool*>(ctx.scratch({candidates}, DType::i32).raw());
  const dim3 each(static_cast<unsigned>(positions));
  launch_behind(ctx, decay_kernel, dim3(grid_for(candidates, threads)), dim3(threads), 0, floats(store.usage), numbers,
                gone, candidates, static_cast<float>(1 - settings.decay));
  launch_behind(ctx, hits_kernel, each, dim3(threads), 0, lesson);
  const std::int32_t* order = one_part ? sort_pairs(ctx, reinterpret_cast<const std::int32_t*>(floats(store.usage)),
                                                    numbers, candidates, usage_bits)
                                             .items
                                       : slots_used_least(ctx, store, settings, lesson, numbers, positions);
  const std::int64_t ordered = one_part ? candidates : positions;
  if (settings.inherit && store.reach > 0) pass_on(ctx, store, settings, lesson, order, ordered, positions, gone);
  births_kernel<<<each, threads, 0, ctx.cuda->stream>>>(lesson, order, ordered);
  SOME_CUDA_CHECK(cudaGetLastError());
  if (!one_part) return tend_parts(ctx, lesson, positions, store);
  constexpr std::int64_t grain = 64;  // widths of matrix products are multiples of this
  store.reach = std::min(store.slots(), (candidates + grain - 1) / grain * grain);
}

void move_in(Context& ctx, const Tensor& queries, const Tensor& targets, const Tensor& places, const Tensor& homes,
             Store& store) {
  const std::int64_t positions = queries.dim(0);
  if (positions == 0) return;
  if (positions > most_window) failed("{} positions at once; {} is the most", positions, most_window);
  launch_behind(ctx, move_in_kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0, draft_of(store),
                floats(queries), ints(targets), longs(places), ints(homes));
}

void settle_down(Context& ctx, Store& store) {
  const Draft draft = draft_of(store);
  if (store.parts() > 1)
    launch_behind(ctx, sums_of_parts_kernel, dim3(static_cast<unsigned>(store.parts())), dim3(threads), 0, draft,
                  floats(store.centres), store.part_size());
  launch_behind(ctx, keys_of_sums_kernel, dim3(static_cast<unsigned>(store.slots())), dim3(threads), 0, draft,
                floats(store.counts), floats(store.usage));
}

}  // namespace some::memory::cuda
