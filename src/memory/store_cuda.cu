// The memory on the GPU, all in fp32. For a window of T positions and M slots: the product of queries and keys (2 T M d
// operations, memory/product_cuda.cu); one block per position to reduce its row of scores (4 T M bytes, mostly from
// L2); and one block per position for the lesson (memory/lesson_cuda.cu). If slots leave what they hold to heirs, a
// second product compares their keys with all keys. Nothing is read back in between.
#include "memory/store_cuda.cuh"

namespace some::memory::cuda {
namespace {

constexpr int kinds_at_most = static_cast<int>(most_sharpnesses);

struct Sharpnesses {
  float of[kinds_at_most];
  int count;
};
Sharpnesses sharpnesses(const MemorySettings& settings) {
  Sharpnesses out{};
  out.count = static_cast<int>(settings.sharpness.size());
  for (int i = 0; i < out.count; ++i) out.of[i] = static_cast<float>(settings.sharpness[static_cast<std::size_t>(i)]);
  return out;
}

// What a slot counts for beside its nearness: its count to a power, and 0 where it is empty.
__global__ void __launch_bounds__(threads)
    masses_kernel(const float* counts, float power, std::int64_t reach, float* masses) {
  after_whole_previous();
  const std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (m < reach) masses[m] = counts[m] > 0.0f ? powf(counts[m], power) : 0.0f;
}
const float* masses(Context& ctx, const Store& store, const MemorySettings& settings) {
  if (settings.counts == 1.0) return floats(store.counts);
  float* out = floats(ctx.scratch({store.reach}, DType::f32));
  launch_behind(ctx, masses_kernel, dim3(grid_for(store.reach, threads)), dim3(threads), 0, floats(store.counts),
                static_cast<float>(settings.counts), store.reach, out);
  return out;
}

// One block per row.
template <typename T>
__global__ void __launch_bounds__(threads) queries_kernel(const T* states, const float* mean, float* queries, int d) {
  after_whole_previous();
  __shared__ float partial[warp_size];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * d;
  float square = 0.0f;
  for (int c = threadIdx.x; c < d; c += threads) {
    const float away = to_f32(states[row + c]) - mean[c];
    queries[row + c] = away;
    square = fmaf(away, away, square);
  }
  const float inverse = 1.0f / fmaxf(sqrtf(block_sum(square, partial)), shortest);
  for (int c = threadIdx.x; c < d; c += threads) queries[row + c] *= inverse;
}

__device__ __forceinline__ float block_highest(float value, float* shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(full_warp, value, offset));
  __syncthreads();
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = value;
  __syncthreads();
  value = shared[threadIdx.x % warps];
#pragma unroll
  for (int offset = warps / 2; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(full_warp, value, offset));
  return value;
}

// The slots as the search reads them.
struct Held {
  const float *counts, *tallies;
  const std::int32_t* values;
  std::int64_t slots;
  int entries;

  __device__ float part_of(std::int64_t slot, std::int32_t token) const {
    float part[1];
    parts_of(slot, slot + 1, token, part);
    return part[0];
  }
  // What share of some slots, `threads` apart, belongs to a token, if slots can hold several tokens. Those from `end`
  // on have none. Many entries are on their way from memory at once.
  template <int COUNT>
  __device__ void parts_of(std::int64_t slot, std::int64_t end, std::int32_t token, float (&part)[COUNT]) const {
    static_assert(COUNT <= 32);
    constexpr int together = 2;
    int entry[COUNT];
    unsigned open = 0;  // a bit for every slot whose entries may still hold the token
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (slot + i * threads < end) open |= 1u << i;
      entry[i] = -1;
    }
    for (int j = 0; j < entries && open != 0; j += together) {
      std::int32_t value[together][COUNT];
#pragma unroll
      for (int e = 0; e < together; ++e) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
          value[e][i] = (open >> i & 1u) != 0 && j + e < entries ? values[(j + e) * slots + slot + i * threads] : -1;
      }
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
#pragma unroll
        for (int e = 0; e < together; ++e) {
          if ((open >> i & 1u) != 0 && value[e][i] == token) entry[i] = j + e;
          if (value[e][i] < 0 || value[e][i] == token) open &= ~(1u << i);  // free entries stand behind the others
        }
      }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const std::int64_t own = slot + i * threads;
      part[i] = entry[i] < 0 ? 0.0f : tallies[entry[i] * slots + own] / fmaxf(counts[own], 1.0f);
    }
  }
};

// What is accumulated over the parts of the store, each [kinds, T].
struct Gathered {
  float *shift, *all, *matching;
};

// One block per position adds its scores with some slots to what was gathered from earlier ones, if there are any. Each
// warp finishes one sharpness. SEVERAL: slots can hold several tokens. KINDS: of sharpnesses at most. KEPT: slots of a
// thread that it keeps in its registers; if it has more, it reads them twice.
template <bool SEVERAL, int KINDS, int KEPT>
__global__ void __launch_bounds__(threads, 2)
    search_kernel(Scores scores, Held held, const float* masses, const std::int32_t* targets, Sharpnesses sharpness,
                  bool begins, bool last, Gathered gathered, float* said, std::int32_t* nearest, float* product) {
  after_whole_previous();
  static_assert(KINDS <= warps);
  constexpr bool keeps = KEPT > 0;
  constexpr int at_once = keeps ? KEPT : 4;
  __shared__ float partial[warp_size], sums[2][KINDS][warps];
  __shared__ Near nearest_of[warps];
  __shared__ float part[SEVERAL && !keeps ? slots_at_once : 1];  // every thread reads only what it wrote itself
  const int t = blockIdx.x, positions = gridDim.x, lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int32_t target = targets[t];
  const int looks = scores.looks();
  for (int which = 0; which < looks; ++which) {
    const bool fresh = begins && which == 0;
    const float* row = nullptr;
    std::int32_t first = 0;
    const std::int32_t width = scores.of_row(t, which, row, first) && target >= 0 ? scores.width : 0;
    const float* mass = masses + first;
    const std::int32_t* values = held.values + first;
    float highest = -INFINITY;
    Near mine = nothing_near();
    float score[at_once], own_mass[at_once], own_part[at_once];
    const auto look_at = [&](int base) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int m = base + i * threads;
        score[i] = m < width ? row[m] : 0.0f;
        own_mass[i] = m < width ? mass[m] : 0.0f;
        if constexpr (!SEVERAL) own_part[i] = m < width && values[m] == target ? 1.0f : 0.0f;
      }
      if constexpr (SEVERAL) held.parts_of(first + base, static_cast<std::int64_t>(first) + width, target, own_part);
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int m = base + i * threads;
        if (own_mass[i] > 0.0f) highest = fmaxf(highest, score[i]);
        if (own_part[i] > 0.0f) mine.consider({score[i], first + m});
        if constexpr (SEVERAL && !keeps) {
          if (m < width) part[m] = own_part[i];
        }
      }
    };
    if constexpr (keeps) {
      look_at(threadIdx.x);
    } else {
      for (int base = threadIdx.x; base < width; base += at_once * threads) look_at(base);
    }
    highest = block_highest(highest, partial);
    mine = block_nearest(mine, nearest_of);
    if (threadIdx.x == 0) {
      Near found{fresh ? 0.0f : product[t], fresh ? -1 : nearest[t]};
      found.consider(mine);
      nearest[t] = found.slot;
      product[t] = found.product;
    }
    float all[KINDS] = {}, matching[KINDS] = {};
    const auto add = [&](float one_score, float one_mass, float share) {
      const float behind = one_score - highest;
#pragma unroll
      for (int s = 0; s < KINDS; ++s) {
        if (s >= sharpness.count) break;
        const float weight = one_mass * exp2f(behind * (sharpness.of[s] * 1.44269504f));
        all[s] += weight;
        matching[s] = fmaf(weight, share, matching[s]);
      }
    };
    if (highest > -INFINITY) {
      if constexpr (keeps) {
#pragma unroll
        for (int i = 0; i < KEPT; ++i) {
          if (own_mass[i] > 0.0f) add(score[i], own_mass[i], own_part[i]);
        }
      } else {
#pragma unroll 4
        for (int m = threadIdx.x; m < width; m += threads) {
          const float one_score = row[m], one_mass = mass[m];
          const float share = SEVERAL ? part[m] : (values[m] == target ? 1.0f : 0.0f);
          if (one_mass > 0.0f) add(one_score, one_mass, share);
        }
      }
    }
#pragma unroll
    for (int s = 0; s < KINDS; ++s) {
      if (s >= sharpness.count) break;
      const float whole = warp_sum(all[s]), right = warp_sum(matching[s]);
      if (lane == 0) {
        sums[0][s][warp] = whole;
        sums[1][s][warp] = right;
      }
    }
    __syncthreads();
    if (warp < sharpness.count) {
      const float sum = warp_sum(lane < warps ? sums[0][warp % KINDS][lane] : 0.0f);
      const float sum_matching = warp_sum(lane < warps ? sums[1][warp % KINDS][lane] : 0.0f);
      if (lane == 0) {
        const int at = warp * positions + t;
        const float shift = sharpness.of[warp] * highest;
        float whole = sum, right = sum_matching, level = shift;
        if (!fresh && gathered.all[at] > 0.0f) {
          if (sum > 0.0f) {
            level = fmaxf(gathered.shift[at], shift);
            const float before = expf(gathered.shift[at] - level), now = expf(shift - level);
            whole = before * gathered.all[at] + now * sum;
            right = before * gathered.matching[at] + now * sum_matching;
          } else {
            whole = gathered.all[at];
            right = gathered.matching[at];
            level = gathered.shift[at];
          }
        }
        gathered.all[at] = whole;
        gathered.matching[at] = right;
        gathered.shift[at] = level;
        if (last && which + 1 == looks) said[at] = whole > 0.0f ? right / whole : 0.0f;
      }
    }
  }
}

// The result for an empty store.
__global__ void nothing_found_kernel(float* said, std::int32_t* nearest, float* product, int positions, int kinds) {
  after_whole_previous();
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= positions) return;
  for (int s = 0; s < kinds; ++s) said[s * positions + t] = 0.0f;
  nearest[t] = -1;
  product[t] = 0.0f;
}

// One block per row; `weights` holds the scores at first.
__global__ void __launch_bounds__(threads) weights_kernel(float* weights, const float* scores, const float* mass,
                                                          std::int64_t reach, Sharpnesses sharpness, const float* say) {
  after_whole_previous();
  __shared__ float partial[warp_size];
  const float* row = scores + blockIdx.x * reach;
  float* result = weights + blockIdx.x * reach;
  float highest = -INFINITY;
  for (std::int64_t m = threadIdx.x; m < reach; m += threads) {
    if (mass[m] > 0.0f) highest = fmaxf(highest, row[m]);
    result[m] = 0.0f;
  }
  highest = block_highest(highest, partial);
  if (!(highest > -INFINITY)) return;
  for (int s = 0; s < sharpness.count; ++s) {
    const float sharp = sharpness.of[s], shift = sharp * highest;
    float all = 0.0f;
    for (std::int64_t m = threadIdx.x; m < reach; m += threads) all += mass[m] * expf(sharp * row[m] - shift);
    const float factor = say[blockIdx.x * sharpness.count + s] / block_sum(all, partial);
    for (std::int64_t m = threadIdx.x; m < reach; m += threads)
      result[m] += factor * mass[m] * expf(sharp * row[m] - shift);
  }
}

// The same if a row looks into some parts only: scores [visits, part size].
__global__ void __launch_bounds__(threads)
    part_weights_kernel(float* weights, const float* scores, const float* mass, std::int64_t reach, Visits visits,
                        Sharpnesses sharpness, const float* say) {
  after_whole_previous();
  __shared__ float partial[warp_size];
  const int size = visits.part_size, row = blockIdx.x;
  float* result = weights + row * reach;
  for (std::int64_t m = threadIdx.x; m < reach; m += threads) result[m] = 0.0f;
  // Calls work(slot, score) for this thread's slots in every part the row looks into.
  const auto each = [&](auto work) {
    for (int i = 0; i < visits.look; ++i) {
      const Scores part{scores, 0, size, visits};
      const float* from = nullptr;
      std::int32_t first = 0;
      if (!part.of_row(row, i, from, first)) continue;
      for (int m = threadIdx.x; m < size; m += threads) work(first + m, from[m]);
    }
  };
  float highest = -INFINITY;
  each([&](std::int32_t slot, float score) {
    if (mass[slot] > 0.0f) highest = fmaxf(highest, score);
  });
  highest = block_highest(highest, partial);
  if (!(highest > -INFINITY)) return;
  __syncthreads();  // another thread may have set the zero that this one adds to
  for (int s = 0; s < sharpness.count; ++s) {
    const float sharp = sharpness.of[s], shift = sharp * highest;
    float all = 0.0f;
    each([&](std::int32_t slot, float score) { all += mass[slot] * expf(sharp * score - shift); });
    const float factor = say[row * sharpness.count + s] / block_sum(all, partial);
    each([&](std::int32_t slot, float score) { result[slot] += factor * mass[slot] * expf(sharp * score - shift); });
  }
}

// Settling: one block per position, like search_kernel; the slot that suits best of those considered so far.
__global__ void __launch_bounds__(threads)
    homes_kernel(Scores scores, Held held, const std::int32_t* targets, float of_token, bool begins,
                 std::int32_t* homes, float* suits) {
  after_whole_previous();
  __shared__ Near nearest_of[warps];
  const int t = blockIdx.x, looks = scores.looks();
  const std::int32_t target = targets[t];
  Near mine = nothing_near();
  for (int which = 0; which < looks && target >= 0; ++which) {
    const float* row = nullptr;
    std::int32_t first = 0;
    if (!scores.of_row(t, which, row, first)) continue;
    for (int m = threadIdx.x; m < scores.width; m += threads) {
      if (!(held.counts[first + m] > 0.0f)) continue;
      const float part = held.part_of(first + m, target);
      if (held.entries == 1 && !(part > 0.0f)) continue;  // it could not keep another token
      mine.consider({row[m] + of_token * part, first + m});
    }
  }
  mine = block_nearest(mine, nearest_of);
  if (threadIdx.x != 0) return;
  Near found{begins ? 0.0f : suits[t], begins ? -1 : homes[t]};
  found.consider(mine);
  homes[t] = found.slot;
  suits[t] = found.product;
}

Held held_by(const Store& store) {
  return {floats(store.counts), floats(store.tallied()), ints(store.values), store.slots(),
          static_cast<int>(store.entries())};
}

// Calls work(scores, begins, last) with the scores of all rows with the slots they look into, some slots at a time.
template <typename Work>
void for_scores(Context& ctx, const Store& store, const MemorySettings& settings, const float* rows, std::int64_t count,
                const Work& work) {
  if (looks_into_some(store, settings)) {
    const auto look = static_cast<int>(parts_to_look_into(store, settings));
    const std::int64_t size = store.part_size();
    const Visits visits = visits_of(ctx, store, choose_parts(ctx, store, rows, count, look), count, look);
    const std::int64_t widest = slots_of_part_at_once(size, visits.count);
    float* scores = floats(ctx.scratch({visits.count, widest}, DType::f32));
    for (std::int64_t first = 0; first < size; first += widest) {
      const std::int64_t width = std::min(size - first, widest);
      score_parts(ctx, store, rows, visits, first, width, scores);
      work(Scores{scores, static_cast<std::int32_t>(first), static_cast<std::int32_t>(width), visits}, first == 0,
           first + width == size);
    }
    return;
  }
  float* scores = floats(ctx.scratch({count, std::min(store.reach, slots_at_once)}, DType::f32));
  for (std::int64_t first = 0; first < store.reach; first += slots_at_once) {
    const std::int64_t last = std::min(store.reach, first + slots_at_once);
    score(ctx, store, rows, count, first, last, scores);
    work(Scores{scores, static_cast<std::int32_t>(first), static_cast<std::int32_t>(last - first), {}}, first == 0,
         last == store.reach);
  }
}

}  // namespace

void make_queries(Context& ctx, const Tensor& states, const Tensor& mean, Tensor& queries) {
  if (states.dim(0) == 0) return;
  with_real_type(states.dtype(), "the memory's query", [&](auto zero) {
    using T = decltype(zero);
    launch_behind(ctx, queries_kernel<T>, dim3(static_cast<unsigned>(states.dim(0))), dim3(threads), 0,
                  elements_of<T>(states), floats(mean), floats(queries), static_cast<int>(mean.dim(0)));
  });
}

void search(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
            const Tensor& targets, Found& found) {
  const std::int64_t positions = queries.dim(0);
  if (positions == 0) return;
  const Sharpnesses sharpness = sharpnesses(settings);
  if (store.reach == 0) {
    launch_behind(ctx, nothing_found_kernel, dim3(grid_for(positions, threads)), dim3(threads), 0, floats(found.said),
                  ints(found.nearest), floats(found.product), static_cast<int>(positions), sharpness.count);
    return;
  }
  ArenaScope scope(*ctx.arena);
  float* kept = floats(ctx.scratch({3, static_cast<std::int64_t>(sharpness.count), positions}, DType::f32));
  const std::int64_t each = sharpness.count * positions;
  const Held held = held_by(store);
  const float* mass = masses(ctx, store, settings);
  const auto gather = [&](const Scores& scores, bool begins, bool last) {
    const auto launch = [&](auto kernel) {
      launch_behind(ctx, kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0, scores, held, mass,
                    ints(targets), sharpness, begins, last, Gathered{kept, kept + each, kept + 2 * each},
                    floats(found.said), ints(found.nearest), floats(found.product));
    };
    const auto launch_for = [&](auto several, auto slots_kept) {
      constexpr bool SEVERAL = decltype(several)::value;
      constexpr int KEPT = decltype(slots_kept)::value;
      if (sharpness.count == 1)
        launch(search_kernel<SEVERAL, 1, KEPT>);
      else if (sharpness.count <= 3)
        launch(search_kernel<SEVERAL, 3, KEPT>);
      else
        launch(search_kernel<SEVERAL, kinds_at_most, KEPT>);
    };
    const auto launch_some = [&](auto several) {
      if (scores.width <= 2 * threads)
        launch_for(several, std::integral_constant<int, 2>{});
      else if (scores.width <= 16 * threads)
        launch_for(several, std::integral_constant<int, 16>{});
      else
        launch_for(several, std::integral_constant<int, 0>{});
    };
    if (held.entries > 1)
      launch_some(std::true_type{});
    else
      launch_some(std::false_type{});
  };
  for_scores(ctx, store, settings, floats(queries), positions, gather);
}

void find_homes(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                const Tensor& targets, Tensor& homes) {
  const std::int64_t positions = queries.dim(0);
  if (positions == 0) return;
  ArenaScope scope(*ctx.arena);
  float* suits = floats(ctx.scratch({positions}, DType::f32));
  if (store.reach == 0) {
    launch_behind(ctx, nothing_found_kernel, dim3(grid_for(positions, threads)), dim3(threads), 0, suits, ints(homes),
                  suits, static_cast<int>(positions), 0);
    return;
  }
  const Held held = held_by(store);
  for_scores(ctx, store, settings, floats(queries), positions, [&](const Scores& scores, bool begins, bool) {
    launch_behind(ctx, homes_kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0, scores, held,
                  ints(targets), static_cast<float>(home_of_token), begins, ints(homes), suits);
  });
}

void slot_weights(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& say, Tensor& weights) {
  if (store.reach == 0 || queries.dim(0) == 0) return;
  ArenaScope scope(*ctx.arena);
  const float* mass = masses(ctx, store, settings);
  if (looks_into_some(store, settings)) {
    const auto look = static_cast<int>(parts_to_look_into(store, settings));
    const std::int64_t rows = queries.dim(0), size = store.part_size();
    const Visits visits = visits_of(ctx, store, choose_parts(ctx, store, floats(queries), rows, look), rows, look);
    float* found = floats(ctx.scratch({visits.count, size}, DType::f32));
    score_parts(ctx, store, floats(queries), visits, 0, size, found);
    launch_behind(ctx, part_weights_kernel, dim3(static_cast<unsigned>(rows)), dim3(threads), 0, floats(weights), found,
                  mass, store.reach, visits, sharpnesses(settings), floats(say));
    return;
  }
  float* scores = floats(ctx.scratch({queries.dim(0), store.reach}, DType::f32));
  score(ctx, store, floats(queries), queries.dim(0), 0, store.reach, scores);
  launch_behind(ctx, weights_kernel, dim3(static_cast<unsigned>(queries.dim(0))), dim3(threads), 0, floats(weights),
                scores, mass, store.reach, sharpnesses(settings), floats(say));
}

}  // namespace some::memory::cuda
