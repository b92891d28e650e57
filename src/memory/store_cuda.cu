// The memory on the GPU, all in fp32. A window of T positions and M slots: the product of queries and keys (cuBLASLt,
// 2 T M d operations), one block a position to reduce its row of scores (4 T M bytes, read twice, mostly from the L2
// cache), one warp for the mixture, whose steps follow one another, and one block a position for the lesson. Nothing
// comes back to the host in between.
#include "memory/store.h"
#include "ops/cuda_launch.cuh"
#include "ops/cuda_toolkit.cuh"
#include "ops/segment_sums.h"

namespace some::memory::cuda {
namespace {

constexpr float shortest = 1e-12f;
constexpr int threads = 256;
constexpr int warps = threads / warp_size;
constexpr std::int64_t slots_at_once = 8192;  // scores exist for this many slots at most
constexpr int kinds_at_most = static_cast<int>(most_sharpnesses);
constexpr int shares_of_one = static_cast<int>(shares_each);

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

__device__ __forceinline__ float mass_of(float count, bool by_count) {
  return by_count ? count : (count > 0.0f ? 1.0f : 0.0f);
}

// A row a block.
template <typename T>
__global__ void __launch_bounds__(threads) queries_kernel(const T* states, const float* mean, float* queries, int d) {
  after_previous();
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

// What is gathered over the parts of the store: [kinds, T] each.
struct Gathered {
  float *shift, *all, *matching;
};

// One position a block: scores [T, width] of the slots from `first` on are added to what was gathered before them.
__global__ void __launch_bounds__(threads)
    search_kernel(const float* scores, const float* counts, const std::int32_t* values, const std::int32_t* targets,
                  std::int32_t first, std::int32_t width, Sharpnesses sharpness, bool by_count, bool last,
                  Gathered gathered, float* said, std::int32_t* nearest, float* product) {
  after_previous();
  __shared__ float partial[warp_size];
  __shared__ float best_score[warps];
  __shared__ std::int32_t best_slot[warps];
  const int t = blockIdx.x, positions = gridDim.x;
  const std::int32_t target = targets[t];
  const float* row = scores + static_cast<std::int64_t>(t) * width;
  float highest = -INFINITY, best = -INFINITY;
  std::int32_t slot = -1;
  if (target >= 0) {
    for (int m = threadIdx.x; m < width; m += threads) {
      const float score = row[m];
      if (counts[first + m] > 0.0f) highest = fmaxf(highest, score);
      if (values[first + m] == target && score > best) {  // ascending: the lower slot among equals stays
        best = score;
        slot = first + m;
      }
    }
  }
  highest = block_highest(highest, partial);
  // The nearest of the block; among equals the lower slot.
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(full_warp, best, offset);
    const std::int32_t where = __shfl_xor_sync(full_warp, slot, offset);
    if (where >= 0 && (slot < 0 || other > best || (other == best && where < slot))) {
      best = other;
      slot = where;
    }
  }
  if (threadIdx.x % warp_size == 0) {
    best_score[threadIdx.x / warp_size] = best;
    best_slot[threadIdx.x / warp_size] = slot;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    // What an earlier part found lies in lower slots.
    std::int32_t found = first == 0 ? -1 : nearest[t];
    float nearness = first == 0 ? 0.0f : product[t];
    std::int32_t mine = -1;
    float high = -INFINITY;
    for (int w = 0; w < warps; ++w) {
      if (best_slot[w] < 0) continue;
      if (mine < 0 || best_score[w] > high || (best_score[w] == high && best_slot[w] < mine)) {
        mine = best_slot[w];
        high = best_score[w];
      }
    }
    if (mine >= 0 && (found < 0 || high > nearness)) {
      found = mine;
      nearness = high;
    }
    nearest[t] = found;
    product[t] = nearness;
  }
  for (int s = 0; s < sharpness.count; ++s) {
    const float sharp = sharpness.of[s], shift = sharp * highest;
    float all = 0.0f, matching = 0.0f;
    if (highest > -INFINITY) {
      for (int m = threadIdx.x; m < width; m += threads) {
        const float weight = mass_of(counts[first + m], by_count) * expf(sharp * row[m] - shift);
        all += weight;
        matching += values[first + m] == target ? weight : 0.0f;
      }
    }
    all = block_sum(all, partial);
    matching = block_sum(matching, partial);
    if (threadIdx.x == 0) {
      const int at = s * positions + t;
      float whole = all, right = matching, level = shift;
      if (first > 0 && gathered.all[at] > 0.0f) {
        if (all > 0.0f) {
          level = fmaxf(gathered.shift[at], shift);
          const float before = expf(gathered.shift[at] - level), now = expf(shift - level);
          whole = before * gathered.all[at] + now * all;
          right = before * gathered.matching[at] + now * matching;
        } else {
          whole = gathered.all[at];
          right = gathered.matching[at];
          level = gathered.shift[at];
        }
      }
      gathered.all[at] = whole;
      gathered.matching[at] = right;
      gathered.shift[at] = level;
      if (last) said[at] = whole > 0.0f ? right / whole : 0.0f;
    }
  }
}

// Of an empty store.
__global__ void nothing_found_kernel(float* said, std::int32_t* nearest, float* product, int positions, int kinds) {
  after_previous();
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= positions) return;
  for (int s = 0; s < kinds; ++s) said[s * positions + t] = 0.0f;
  nearest[t] = -1;
  product[t] = 0.0f;
}

__constant__ float share_of[shares_of_one] = {0.0f, 0.05f, 0.1f, 0.2f, 0.4f, 0.6f, 0.8f};

// One block. Its first lanes, one a sharpness, go through the positions one after another, while exponentials and
// logarithms, which do not depend on what comes before, are computed by all threads.
constexpr int mixed_at_once = 512;
template <int LANES>
__global__ void __launch_bounds__(threads) mix_kernel(const float* said, const std::int32_t* targets, int positions,
                                                      int kinds, float kept, float given, float* shares, float* nll) {
  after_previous();
  __shared__ float model[mixed_at_once], answer[mixed_at_once], memory[LANES][mixed_at_once];
  __shared__ bool real[mixed_at_once];
  float weight[shares_of_one];
  const int lane = threadIdx.x;
  if (lane < LANES) {
#pragma unroll
    for (int j = 0; j < shares_of_one; ++j) weight[j] = lane < kinds ? shares[lane * shares_of_one + j] : 0.0f;
  }
  for (int first = 0; first < positions; first += mixed_at_once) {
    const int count = min(mixed_at_once, positions - first);
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += threads) {
      real[i] = targets[first + i] >= 0;
      model[i] = fmaxf(expf(-nll[first + i]), 1.17549435e-38f);
#pragma unroll
      for (int s = 0; s < LANES; ++s) memory[s][i] = s < kinds ? said[s * positions + first + i] : 0.0f;
    }
    __syncthreads();
    if (lane < LANES) {
      constexpr unsigned who = LANES == 32 ? full_warp : (1u << LANES) - 1u;
      for (int i = 0; i < count; ++i) {
        if (!real[i]) continue;
        const float alone = model[i], remembered = memory[lane][i];
        float part[shares_of_one];
#pragma unroll
        for (int j = 0; j < shares_of_one; ++j)
          part[j] = weight[j] * ((1.0f - share_of[j]) * alone + share_of[j] * remembered);
        float sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + part[6]);
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(who, sum, offset);
        const float factor = kept / sum;
#pragma unroll
        for (int j = 0; j < shares_of_one; ++j) weight[j] = lane < kinds ? fmaf(factor, part[j], given) : 0.0f;
        if (lane == 0) answer[i] = sum;
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += threads) {
      if (real[i]) nll[first + i] = -logf(answer[i]);
    }
  }
  if (lane < kinds) {
#pragma unroll
    for (int j = 0; j < shares_of_one; ++j) shares[lane * shares_of_one + j] = weight[j];
  }
}

// spec 8, learning 1; and the slots' numbers, to be sorted by usage later.
__global__ void __launch_bounds__(threads)
    decay_kernel(float* usage, std::int32_t* numbers, std::int64_t count, float kept) {
  after_previous();
  const std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (m >= count) return;
  usage[m] *= kept;
  numbers[m] = static_cast<std::int32_t>(m);
}

struct Lesson {
  const float *queries, *product;
  const std::int32_t *targets, *nearest;
  const long long* places;
  float *keys, *counts, *usage;
  std::int32_t *values, *fates;
  long long *born, *hit;
  float match;
  int d;

  __device__ bool is_hit(int t) const { return targets[t] >= 0 && nearest[t] >= 0 && product[t] > match; }
  __device__ bool is_miss(int t) const { return targets[t] >= 0 && !(nearest[t] >= 0 && product[t] > match); }
};

constexpr int most_words = static_cast<int>(most_window / warp_size);

// A block a position: the first one that hit a slot moves its key, for all that did, in their order.
__global__ void __launch_bounds__(threads) hits_kernel(Lesson lesson) {
  after_previous();
  __shared__ unsigned together[most_words];  // positions that hit the same slot
  __shared__ float partial[warp_size];
  const int t = blockIdx.x, positions = gridDim.x, d = lesson.d;
  if (!lesson.is_hit(t)) return;
  const std::int32_t slot = lesson.nearest[t];
  bool earlier = false;
  for (int base = 0; base < positions; base += threads) {
    const int other = base + static_cast<int>(threadIdx.x);
    const bool same = other < positions && lesson.is_hit(other) && lesson.nearest[other] == slot;
    earlier = earlier || (same && other < t);
    const unsigned word = __ballot_sync(full_warp, same);
    if (threadIdx.x % warp_size == 0 && other < positions) together[other / warp_size] = word;
  }
  if (threadIdx.x == 0) lesson.fates[t] = slot;
  if (__syncthreads_or(earlier)) return;
  const int words = (positions + warp_size - 1) / warp_size;
  int hits = 0, latest = t;
  for (int w = t / warp_size; w < words; ++w) {
    hits += __popc(together[w]);
    if (together[w] != 0) latest = w * warp_size + 31 - __clz(static_cast<int>(together[w]));
  }
  const float inertia = lesson.counts[slot], more = static_cast<float>(hits), total = inertia + more;
  float* key = lesson.keys + static_cast<std::int64_t>(slot) * d;
  float square = 0.0f;
  for (int c = threadIdx.x; c < d; c += threads) {
    float sum = 0.0f;
    for (int w = t / warp_size; w < words; ++w) {
      for (unsigned left = together[w]; left != 0; left &= left - 1) {
        const int other = w * warp_size + __ffs(static_cast<int>(left)) - 1;
        sum += lesson.queries[static_cast<std::int64_t>(other) * d + c];
      }
    }
    const float moved = (inertia * key[c] + sum) / total;
    key[c] = moved;
    square = fmaf(moved, moved, square);
  }
  const float inverse = 1.0f / fmaxf(sqrtf(block_sum(square, partial)), shortest);
  for (int c = threadIdx.x; c < d; c += threads) key[c] *= inverse;
  if (threadIdx.x == 0) {
    lesson.counts[slot] = total;
    lesson.usage[slot] += more;
    lesson.hit[slot] = lesson.places[latest];
  }
}

// A block a position: the j-th that missed is born in the j-th slot of `order`.
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
  if (before >= candidates) {
    if (threadIdx.x == 0) lesson.fates[t] = no_fate;
    return;
  }
  const std::int32_t slot = order[before];
  const float* query = lesson.queries + static_cast<std::int64_t>(t) * d;
  float* key = lesson.keys + static_cast<std::int64_t>(slot) * d;
  for (int c = threadIdx.x; c < d; c += threads) key[c] = query[c];
  if (threadIdx.x == 0) {
    lesson.values[slot] = lesson.targets[t];
    lesson.counts[slot] = 1.0f;
    lesson.usage[slot] = 1.0f;
    lesson.born[slot] = lesson.places[t];
    lesson.hit[slot] = lesson.places[t];
    lesson.fates[t] = slot | born_flag;
  }
}

// A row a block; weights hold the scores at first.
__global__ void __launch_bounds__(threads)
    weights_kernel(float* weights, const float* scores, const float* counts, std::int64_t reach, Sharpnesses sharpness,
                   bool by_count, const float* say) {
  after_previous();
  __shared__ float partial[warp_size];
  const float* row = scores + blockIdx.x * reach;
  float* result = weights + blockIdx.x * reach;
  float highest = -INFINITY;
  for (std::int64_t m = threadIdx.x; m < reach; m += threads) {
    if (counts[m] > 0.0f) highest = fmaxf(highest, row[m]);
    result[m] = 0.0f;
  }
  highest = block_highest(highest, partial);
  if (!(highest > -INFINITY)) return;
  for (int s = 0; s < sharpness.count; ++s) {
    const float sharp = sharpness.of[s], shift = sharp * highest;
    float all = 0.0f;
    for (std::int64_t m = threadIdx.x; m < reach; m += threads)
      all += mass_of(counts[m], by_count) * expf(sharp * row[m] - shift);
    const float factor = say[blockIdx.x * sharpness.count + s] / block_sum(all, partial);
    for (std::int64_t m = threadIdx.x; m < reach; m += threads)
      result[m] += factor * mass_of(counts[m], by_count) * expf(sharp * row[m] - shift);
  }
}

void score(Context& ctx, const Store& store, const Tensor& queries, std::int64_t first, std::int64_t last,
           float* scores) {
  const std::int64_t d = queries.dim(1);
  matmul(ctx, queries.dim(0), last - first, d, {queries.raw(), DType::f32, false},
         {floats(store.keys) + first * d, DType::f32, true}, scores, DType::f32, false);
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
  const std::int64_t widest = std::min(store.reach, slots_at_once);
  float* scores = floats(ctx.scratch({positions, widest}, DType::f32));
  float* kept = floats(ctx.scratch({3, static_cast<std::int64_t>(sharpness.count), positions}, DType::f32));
  const std::int64_t each = sharpness.count * positions;
  for (std::int64_t first = 0; first < store.reach; first += slots_at_once) {
    const std::int64_t last = std::min(store.reach, first + slots_at_once);
    score(ctx, store, queries, first, last, scores);
    launch_behind(ctx, search_kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0, scores,
                  floats(store.counts), ints(store.values), ints(targets), static_cast<std::int32_t>(first),
                  static_cast<std::int32_t>(last - first), sharpness, settings.counts, last == store.reach,
                  Gathered{kept, kept + each, kept + 2 * each}, floats(found.said), ints(found.nearest),
                  floats(found.product));
  }
}

void mix(Context& ctx, const MemorySettings& settings, const Found& found, const Tensor& targets, Tensor& shares,
         Tensor& nll) {
  const int positions = static_cast<int>(targets.dim(0)), kinds = static_cast<int>(settings.sharpness.size());
  if (positions == 0) return;
  const float kept = static_cast<float>(1 - settings.share),
              given = static_cast<float>(settings.share / static_cast<double>(settings.mixed()));
  const auto launch = [&](auto kernel) {
    launch_behind(ctx, kernel, dim3(1), dim3(threads), 0, floats(found.said), ints(targets), positions, kinds, kept,
                  given, floats(shares), floats(nll));
  };
  if (kinds == 1)
    launch(mix_kernel<1>);
  else if (kinds == 2)
    launch(mix_kernel<2>);
  else if (kinds <= 4)
    launch(mix_kernel<4>);
  else
    launch(mix_kernel<8>);
}

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
                      ints(store.values),
                      ints(fates),
                      longs(store.born),
                      longs(store.hit),
                      static_cast<float>(settings.match),
                      static_cast<int>(queries.dim(1))};
  // Slots from reach on have usage 0: as many of them as there are positions are candidates enough.
  const std::int64_t candidates = std::min(store.slots(), store.reach + positions);
  std::int32_t* numbers = ints(ctx.scratch({candidates}, DType::i32));
  const dim3 each(static_cast<unsigned>(positions));
  launch_behind(ctx, decay_kernel, dim3(grid_for(candidates, threads)), dim3(threads), 0, floats(store.usage), numbers,
                candidates, static_cast<float>(1 - settings.decay));
  launch_behind(ctx, hits_kernel, each, dim3(threads), 0, lesson);
  // Numbers that are not negative are in the order of their bits.
  const SortedPairs sorted =
      sort_pairs(ctx, reinterpret_cast<const std::int32_t*>(floats(store.usage)), numbers, candidates, 31);
  births_kernel<<<each, threads, 0, ctx.cuda->stream>>>(lesson, sorted.items, candidates);
  SOME_CUDA_CHECK(cudaGetLastError());
  constexpr std::int64_t grain = 64;  // of a matrix product's width
  store.reach = std::min(store.slots(), (candidates + grain - 1) / grain * grain);
}

void slot_weights(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& say, Tensor& weights) {
  if (store.reach == 0 || queries.dim(0) == 0) return;
  ArenaScope scope(*ctx.arena);
  float* scores = floats(ctx.scratch({queries.dim(0), store.reach}, DType::f32));
  score(ctx, store, queries, 0, store.reach, scores);
  launch_behind(ctx, weights_kernel, dim3(static_cast<unsigned>(queries.dim(0))), dim3(threads), 0, floats(weights),
                scores, floats(store.counts), store.reach, sharpnesses(settings), settings.counts, floats(say));
}

}  // namespace some::memory::cuda
