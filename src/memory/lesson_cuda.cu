// The memory's lesson on the GPU, with one block per position for hits, legacies and births. Nothing is read back to
// the host.
#include "memory/entries_cuda.cuh"
#include "memory/group_cuda.cuh"
#include "memory/lesson_cuda.cuh"
#include "ops/segment_sums.h"

namespace some::memory::cuda {
namespace {

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

// Learning 1 of spec 8, for the slots of one block that nobody hit: those who hit one do it themselves. Also numbers
// the slots where they are sorted later, and says of each whether it is too empty to be an heir; both may be null.
__device__ void decay(const Lesson& lesson, std::int64_t first, std::int64_t count, std::int32_t* numbers,
                      bool* closed) {
  __shared__ bool hit[threads];
  hit[threadIdx.x] = false;
  __syncthreads();
  for (int t = threadIdx.x; t < lesson.positions; t += threads) {
    const std::int64_t slot = lesson.nearest[t] - first;
    if (slot >= 0 && slot < threads && lesson.is_hit(t)) hit[slot] = true;
  }
  __syncthreads();
  const std::int64_t m = first + threadIdx.x;
  if (m >= count) return;
  if (!hit[threadIdx.x]) lesson.usage[m] *= lesson.kept;
  if (numbers != nullptr) numbers[m] = static_cast<std::int32_t>(m);
  if (closed != nullptr) closed[m] = !hit[threadIdx.x] && !(lesson.counts[m] > 0.0f);
}

// One block per position: the first position that hit a slot moves its key, for all that did, in their order. The
// blocks behind them let the others decay.
__global__ void __launch_bounds__(threads)
    hits_kernel(Lesson lesson, std::int64_t candidates, std::int32_t* numbers, bool* closed) {
  after_whole_previous();
  __shared__ Group::Shared together;
  __shared__ float partial[warp_size];
  const int t = blockIdx.x, positions = lesson.positions, d = lesson.d;
  if (t >= positions)
    return decay(lesson, static_cast<std::int64_t>(t - positions) * threads, candidates, numbers, closed);
  if (!lesson.is_hit(t)) return;
  const std::int32_t slot = lesson.nearest[t];
  if (threadIdx.x == 0) lesson.fates[t] = slot;
  Group group{};
  if (!group.collect(together, t, positions,
                     [&](int other) { return lesson.is_hit(other) && lesson.nearest[other] == slot; }))
    return;
  const float inertia = lesson.counts[slot], more = static_cast<float>(group.count), total = inertia + more;
  move_key(lesson.keys + static_cast<std::int64_t>(slot) * d, inertia, total, d, partial, [&](int c) {
    return group.sum(0.0f, [&](int other) { return lesson.queries[static_cast<std::int64_t>(other) * d + c]; });
  });
  if (threadIdx.x >= warp_size) return;
  if (threadIdx.x == 0) {
    lesson.counts[slot] = total;
    lesson.usage[slot] = __fadd_rn(__fmul_rn(lesson.usage[slot], lesson.kept), more);
    if (lesson.entries == 1) lesson.hit[slot] = lesson.places[group.members[group.count - 1]];
  }
  if (lesson.entries == 1) return;
  WarpEntries entries(lesson.entries_of(slot));
  for (int base = 0; base < group.count; base += warp_size) {
    const int here = min(warp_size, group.count - base);
    const int own = group.members[base + min(static_cast<int>(threadIdx.x), here - 1)];
    const std::int32_t token = lesson.targets[own];
    const long long place = lesson.places[own];
    for (int i = 0; i < here; ++i) entries.found(__shfl_sync(full_warp, token, i), __shfl_sync(full_warp, place, i));
  }
  entries.write(lesson.entries_of(slot));
}

// What the slots that give way leave behind; row j belongs to the j-th slot of `order`. It is all copied, since births
// take these slots while their heirs are still taking it in. Rows of slots that leave nothing may hold anything.
struct Legacy {
  float* keys;            // [T, d]
  std::int32_t* leaving;  // [T]: slots, or -1
  float *counts, *usage;  // [T]
  float* tallies;         // [K, T], as are the following
  std::int32_t* values;
  long long *born, *hit;
  unsigned long long* nearest;  // [T]: the heirs, packed
  bool* closed;                 // of every candidate, whether it can be no heir: it is empty, or gives way
  std::int32_t* rows;           // [1]: from this row on nothing is left

  __device__ Entries<float, long long> entries_of(int j, const Lesson& lesson) const {
    return {values + j, tallies + j, born + j, hit + j, lesson.positions, lesson.entries};
  }
  __device__ void leave_nothing(int j) const {
    leaving[j] = -1;
    nearest[j] = 0;
  }
  // All but the key; one warp.
  __device__ void leave(const Lesson& lesson, int j, std::int32_t slot) const {
    WarpEntries(lesson.entries_of(slot)).write(entries_of(j, lesson));
    if (threadIdx.x % warp_size != 0) return;
    leaving[j] = slot;
    counts[j] = lesson.counts[slot];
    usage[j] = lesson.usage[slot];
    nearest[j] = 0;
  }
  __device__ std::int32_t heir_of(int j) const { return leaving[j] < 0 ? -1 : slot_of(nearest[j]); }
};

// The order in which slots give way, by usage and then by slot, as far as they do, and what they leave, where `legacy`
// has room for it. Each block counts for 16 slots how many come before them: for a few thousand slots these are fewer
// steps, one after another, than a sort has. order: [positions].
constexpr std::int64_t most_ranked = 8192;
constexpr int ranked_each = 16, ranked_tile = 4096;
__global__ void __launch_bounds__(threads)
    rank_kernel(Lesson lesson, Legacy legacy, std::int32_t candidates, std::int32_t* order) {
  after_whole_previous();
  constexpr int halves = 2 * warps, fours = ranked_tile / 4 / threads;
  static_assert(warp_size == 2 * ranked_each);
  __shared__ uint4 tile[ranked_tile / 4];
  __shared__ std::int32_t before[halves][ranked_each];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size, own = blockIdx.x * ranked_each;
  const int mine_at = own + lane % ranked_each, half = threadIdx.x / ranked_each;
  const int there = min(mine_at, candidates - 1);
  const unsigned mine = __float_as_uint(lesson.usage[there]);
  const float own_count = lesson.counts[there];
  // Four slots; those that are none come last.
  const auto usage_of = [&](int m) {
    const auto* usage = reinterpret_cast<const unsigned*>(lesson.usage) + m;
    if (m + 4 <= candidates) return *reinterpret_cast<const uint4*>(usage);
    constexpr unsigned last = 0xFFFFFFFFu;
    return make_uint4(m < candidates ? usage[0] : last, m + 1 < candidates ? usage[1] : last,
                      m + 2 < candidates ? usage[2] : last, last);
  };
  std::int32_t sum = 0;
  int misses = 0;
  for (int first = 0; first < candidates; first += ranked_tile) {
    uint4 next[fours];
#pragma unroll
    for (int i = 0; i < fours; ++i) next[i] = usage_of(first + 4 * (i * threads + static_cast<int>(threadIdx.x)));
    if (first == 0)
      misses = lesson.misses_before(lesson.positions);
    else
      __syncthreads();
#pragma unroll
    for (int i = 0; i < fours; ++i) tile[i * threads + threadIdx.x] = next[i];
    __syncthreads();
    // Half a warp compares its slots with 32 others at a time.
    for (int at = half * warp_size; at < ranked_tile && first + at < candidates; at += halves * warp_size) {
      const uint4* others = tile + at / 4;
      const int apart = mine_at - (first + at);  // of the others those below this number come first among equals
      if (apart >= 0 && apart < warp_size) {
        for (int i = 0; i < warp_size; ++i)
          sum += reinterpret_cast<const unsigned*>(others)[i] < mine + (i < apart ? 1u : 0u);
      } else {
        const unsigned below = mine + (apart > 0 ? 1u : 0u);
#pragma unroll
        for (int i = 0; i < warp_size / 4; ++i) {
          const uint4 four = others[i];
          sum += (four.x < below) + (four.y < below) + (four.z < below) + (four.w < below);
        }
      }
    }
  }
  before[half][lane % ranked_each] = sum;
  __syncthreads();
  for (int i = warp; i < ranked_each && own + i < candidates; i += warps) {
    const std::int32_t slot = own + i;
    const int rank = __reduce_add_sync(full_warp, lane < halves ? before[lane % halves][i] : 0);
    const bool gives_way = rank < misses;
    const float count = __shfl_sync(full_warp, own_count, i);
    const bool holds = count > 0.0f;
    if (lane == 0 && gives_way) order[rank] = slot;
    if (legacy.keys == nullptr) continue;
    if (lane == 0) legacy.closed[slot] = gives_way || !holds;
    if (!gives_way) continue;
    if (!holds) {
      if (lane == 0) legacy.leave_nothing(rank);
      continue;
    }
    legacy.leave(lesson, rank, slot);
    const float* from = lesson.keys + static_cast<std::int64_t>(slot) * lesson.d;
    float* to = legacy.keys + static_cast<std::int64_t>(rank) * lesson.d;
    // All numbers are on their way at once: one by one each store would hold up the next load.
    constexpr int at_once = 16;
    for (int base = lane; base < lesson.d; base += at_once * warp_size) {
      float next[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) next[j] = base + j * warp_size < lesson.d ? from[base + j * warp_size] : 0.0f;
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        if (base + j * warp_size < lesson.d) to[base + j * warp_size] = next[j];
      }
    }
  }
  if (legacy.keys == nullptr || blockIdx.x != 0) return;
  const int rows = min(misses, candidates);
  for (int j = rows + static_cast<int>(threadIdx.x); j < lesson.positions; j += threads) legacy.leave_nothing(j);
  if (threadIdx.x == 0) *legacy.rows = rows;
}

// The same where `order` is known, with one block per position: the j-th slot of `order` gives way if there are more
// than j births, and leaves something if it holds something.
__global__ void __launch_bounds__(threads)
    leaving_kernel(Lesson lesson, Legacy legacy, const std::int32_t* order, std::int64_t candidates) {
  after_whole_previous();
  const int j = blockIdx.x, d = lesson.d;
  const int misses = lesson.misses_before(lesson.positions);
  const bool gives_way = j < misses && j < candidates && order[j] >= 0;
  const std::int32_t slot = gives_way ? order[j] : -1;
  const bool leaves = gives_way && lesson.counts[slot] > 0.0f;
  for (int c = threadIdx.x; c < d; c += threads)
    legacy.keys[static_cast<std::int64_t>(j) * d + c] =
        leaves ? lesson.keys[static_cast<std::int64_t>(slot) * d + c] : 0.0f;
  if (threadIdx.x >= warp_size) return;
  if (leaves) legacy.leave(lesson, j, slot);
  if (threadIdx.x != 0) return;
  if (!leaves) legacy.leave_nothing(j);
  if (gives_way) legacy.closed[slot] = true;
  if (j == 0) *legacy.rows = min(misses, lesson.positions);
}

// One block per row looks for an heir among some slots, by the scores of what is left with these slots.
__global__ void __launch_bounds__(threads) heirs_kernel(Lesson lesson, Legacy legacy, Scores scores) {
  after_whole_previous();
  __shared__ Near nearest_of[warps];
  const int j = blockIdx.x;
  const std::int32_t slot = legacy.leaving[j];
  if (slot < 0) return;
  const std::int32_t token = lesson.values[slot];
  const bool any = lesson.entries > 1;
  Near mine = nothing_near();
  for (int which = 0; which < scores.looks(); ++which) {
    const float* row = nullptr;
    std::int32_t first = 0;
    if (!scores.of_row(j, which, row, first)) continue;
#pragma unroll 4
    for (int m = threadIdx.x; m < scores.width; m += threads) {
      const float score = row[m];
      const bool closed = legacy.closed[first + m];
      if (!closed && (any || lesson.values[first + m] == token)) mine.consider({score, first + m});
    }
  }
  mine = block_nearest(mine, nearest_of);
  if (threadIdx.x == 0) legacy.nearest[j] = max(legacy.nearest[j], packed(mine));
}

// One block per row: the first row of an heir hands over what all its rows leave, in their order.
__device__ void inherit(const Lesson& lesson, const Legacy& legacy, int j) {
  __shared__ Group::Shared together;
  __shared__ float partial[warp_size];
  const int d = lesson.d;
  const std::int32_t heir = legacy.heir_of(j);
  if (heir < 0) return;
  Group group{};
  if (!group.collect(together, j, lesson.positions, [&](int other) { return legacy.heir_of(other) == heir; })) return;
  const float inertia = lesson.counts[heir];
  const float total = group.sum(inertia, [&](int other) { return legacy.counts[other]; });
  move_key(lesson.keys + static_cast<std::int64_t>(heir) * d, inertia, total, d, partial, [&](int c) {
    return group.sum(
        0.0f,
        [&](int other) {
          return make_float2(legacy.counts[other], legacy.keys[static_cast<std::int64_t>(other) * d + c]);
        },
        [](float sum, float2 next) { return fmaf(next.x, next.y, sum); });
  });
  if (threadIdx.x >= warp_size) return;
  WarpEntries entries(lesson.entries_of(heir));
  WarpEntries next(legacy.entries_of(group.members[0], lesson));
  for (int i = 0; i < group.count; ++i) {
    const WarpEntries other = next;
    if (i + 1 < group.count) next = WarpEntries(legacy.entries_of(group.members[i + 1], lesson));
    entries.take_all(other);
  }
  entries.write(lesson.entries_of(heir));
  const float count = entries.total();
  if (threadIdx.x != 0) return;
  lesson.counts[heir] = count;
  lesson.usage[heir] = group.sum(lesson.usage[heir], [&](int other) { return legacy.usage[other]; });
}

// One block per position: the j-th position that missed is born in the j-th slot of `order`.
__device__ void bear(const Lesson& lesson, int t, const std::int32_t* order, std::int64_t candidates) {
  const int d = lesson.d;
  if (!lesson.is_miss(t)) {
    if (threadIdx.x == 0 && lesson.targets[t] < 0) lesson.fates[t] = no_fate;
    return;
  }
  const int before = lesson.misses_before(t);
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

// Heirs take in what was left, where anything was, and births take the slots that it was left by.
__global__ void __launch_bounds__(threads)
    births_kernel(Lesson lesson, Legacy legacy, const std::int32_t* order, std::int64_t candidates) {
  after_whole_previous();
  const int block = blockIdx.x, heirs = static_cast<int>(gridDim.x) - lesson.positions;
  if (block < heirs)
    inherit(lesson, legacy, block);
  else
    bear(lesson, block - heirs, order, candidates);
}

// Slots that leave nothing behind need no heir, so they look into no part.
__global__ void __launch_bounds__(threads)
    look_nowhere_kernel(const std::int32_t* leaving, std::int64_t pairs, int look, std::int32_t* looked) {
  after_whole_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < pairs && leaving[i / look] < 0) looked[i] = -1;
}

Legacy make_legacy(Context& ctx, const Lesson& lesson, bool* closed) {
  const std::int64_t positions = lesson.positions, entries = lesson.entries;
  Legacy out{};
  out.keys = floats(ctx.scratch({positions, lesson.d}, DType::f32));
  out.leaving = ints(ctx.scratch({positions}, DType::i32));
  out.counts = floats(ctx.scratch({positions}, DType::f32));
  out.usage = floats(ctx.scratch({positions}, DType::f32));
  out.tallies = floats(ctx.scratch({entries, positions}, DType::f32));
  out.values = ints(ctx.scratch({entries, positions}, DType::i32));
  out.born = longs(ctx.scratch({entries, positions}, DType::i64));
  out.hit = longs(ctx.scratch({entries, positions}, DType::i64));
  out.nearest = reinterpret_cast<unsigned long long*>(longs(ctx.scratch({positions}, DType::i64)));
  out.closed = closed;
  out.rows = ints(ctx.scratch({1}, DType::i32));
  return out;
}

// Finds heirs for the slots that give way.
void find_heirs(Context& ctx, const Store& store, const MemorySettings& settings, const Lesson& lesson,
                const Legacy& legacy) {
  const std::int64_t positions = lesson.positions;
  const dim3 each(static_cast<unsigned>(positions));
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
  } else if (lesson.entries > 1 && lesson.d % product_depth == 0) {  // heirs of one entry must have the same token
    find_nearest(ctx, store, legacy.keys, positions, legacy.rows, legacy.closed, legacy.nearest);
  } else {
    float* scores = floats(ctx.scratch({positions, std::min(store.reach, slots_at_once)}, DType::f32));
    for (std::int64_t first = 0; first < store.reach; first += slots_at_once) {
      const std::int64_t last = std::min(store.reach, first + slots_at_once);
      score(ctx, store, legacy.keys, positions, first, last, scores);
      consider({scores, static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - first), {}});
    }
  }
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
                      static_cast<float>(1 - settings.decay),
                      static_cast<int>(queries.dim(1)),
                      static_cast<int>(store.entries()),
                      static_cast<int>(positions)};
  // Slots from reach on have usage 0, so it is enough to consider as many of them as there are positions. Parts that
  // have not begun have no candidates.
  const bool one_part = store.parts() == 1;
  const std::int64_t candidates = one_part ? std::min(store.slots(), store.reach + positions) : store.reach;
  const bool ranks = one_part && candidates <= most_ranked, inherits = settings.inherit && store.reach > 0;
  std::int32_t* numbers = ranks ? nullptr : ints(ctx.scratch({candidates}, DType::i32));
  bool* closed = inherits ? static_cast<bool*>(ctx.scratch({candidates}, DType::i32).raw()) : nullptr;
  const Legacy legacy = inherits ? make_legacy(ctx, lesson, closed) : Legacy{};
  const dim3 each(static_cast<unsigned>(positions));
  launch_behind(ctx, hits_kernel, dim3(each.x + grid_for(candidates, threads)), dim3(threads), 0, lesson, candidates,
                numbers, ranks ? nullptr : closed);
  const std::int32_t* order = nullptr;
  const std::int64_t ordered = one_part ? candidates : positions;
  if (ranks) {
    std::int32_t* ranked = ints(ctx.scratch({positions}, DType::i32));
    launch_behind(ctx, rank_kernel, dim3(grid_for(candidates, ranked_each)), dim3(threads), 0, lesson, legacy,
                  static_cast<std::int32_t>(candidates), ranked);
    order = ranked;
  } else {
    order = one_part ? sort_pairs(ctx, reinterpret_cast<const std::int32_t*>(floats(store.usage)), numbers, candidates,
                                  usage_bits)
                           .items
                     : slots_used_least(ctx, store, settings, lesson, numbers, positions);
    if (inherits) {
      leaving_kernel<<<each, threads, 0, ctx.cuda->stream>>>(lesson, legacy, order, ordered);
      SOME_CUDA_CHECK(cudaGetLastError());
    }
  }
  if (inherits) find_heirs(ctx, store, settings, lesson, legacy);
  const dim3 blocks(inherits ? 2 * each.x : each.x);
  if (ranks || inherits) {
    launch_behind(ctx, births_kernel, blocks, dim3(threads), 0, lesson, legacy, order, ordered);
  } else {
    births_kernel<<<blocks, threads, 0, ctx.cuda->stream>>>(lesson, legacy, order, ordered);
    SOME_CUDA_CHECK(cudaGetLastError());
  }
  if (!one_part) return tend_parts(ctx, lesson, positions, store);
  constexpr std::int64_t grain = 64;  // widths of matrix products are multiples of this
  store.reach = std::min(store.slots(), (candidates + grain - 1) / grain * grain);
}

}  // namespace some::memory::cuda
