// The additive sums of spec 4 on the GPU. Choices are sorted by (expert, slot); then every sum has one owner and a fixed order. Bytes
// moved: each chosen query once a choice (T*k*d*4), mostly from L2.
#include "keys/key_store.h"

#include <algorithm>

#include "keys/rules.h"
#include "ops/cuda_kernels.h"
#include "ops/segment_sums.h"

namespace some::cuda {
namespace {

constexpr int threads = 512;
constexpr int most_shared_experts = 96;  // whose pair counts fit in a block's shared memory

struct Batch {
  const std::int32_t* indices;
  const std::int32_t* targets;  // null: every row takes part
  std::int64_t rows;
  int slots, top_k, experts;
  double fraction;
  RandomStream stream;
  std::int64_t first_position;

  __device__ bool takes(std::int64_t row) const {
    return (targets == nullptr || targets[row] >= 0) && takes_part(stream, fraction, first_position + row);
  }
};

// Sort keys expert*top_k + slot (E*top_k for a row that does not take part), the number of positions, and how often two experts were
// chosen by one token. Those are whole numbers: atomic additions give the same result in any order.
__global__ void __launch_bounds__(threads) list_choices_kernel(Batch batch, std::int32_t* keys, std::int32_t* items, unsigned long long* positions,
                                                               std::int32_t* together) {
  extern __shared__ std::int32_t pairs[];  // [E, E], the part above the diagonal; not used with many experts
  const int experts = batch.experts, slots = batch.slots;
  const bool in_shared = experts <= most_shared_experts;
  if (in_shared) {
    for (int i = threadIdx.x; i < experts * experts; i += threads) pairs[i] = 0;
    __syncthreads();
  }
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const bool here = row < batch.rows;
  const bool takes = here && batch.takes(row);
  const std::int32_t* chosen = batch.indices + row * slots;
  for (int i = 0; i < slots; ++i) {
    if (here) {
      keys[row * slots + i] = takes ? chosen[i] * batch.top_k + i : experts * batch.top_k;
      items[row * slots + i] = static_cast<std::int32_t>(row * slots + i);
    }
    for (int j = 0; j < i; ++j) {
      int pair = -1;
      if (takes && chosen[i] != chosen[j]) pair = min(chosen[i], chosen[j]) * experts + max(chosen[i], chosen[j]);
      // Tokens that stand together often choose alike (padding does): one addition for all of a warp that do.
      const unsigned alike = __match_any_sync(full_warp, pair);
      if (pair < 0 || __ffs(static_cast<int>(alike)) - 1 != static_cast<int>(threadIdx.x) % warp_size) continue;
      if (in_shared) {
        atomicAdd(pairs + pair, __popc(alike));
      } else {
        atomicAdd(together + pair, __popc(alike));
        atomicAdd(together + pair % experts * experts + pair / experts, __popc(alike));
      }
    }
  }
  const int count = __syncthreads_count(takes);
  if (threadIdx.x == 0 && count > 0) atomicAdd(positions, static_cast<unsigned long long>(count));
  if (!in_shared) return;
  for (int i = threadIdx.x; i < experts * experts; i += threads) {
    if (pairs[i] == 0) continue;
    atomicAdd(together + i, pairs[i]);
    atomicAdd(together + i % experts * experts + i / experts, pairs[i]);
  }
}

__device__ int first_not_below(const std::int32_t* keys, int count, std::int32_t key) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (keys[middle] < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Block e: how many choices each slot of expert e has, and the sum of their gates.
__global__ void __launch_bounds__(1024) expert_sums_kernel(SortedPairs sorted, int count, int slots, int top_k, const float* gates, std::int32_t* slot_counts,
                                                           float* gate_sums) {
  __shared__ double shared[warp_size];
  __shared__ int range[2];
  const int expert = blockIdx.x;
  for (int i = threadIdx.x; i < slots; i += blockDim.x) {
    const int begin = first_not_below(sorted.keys, count, expert * top_k + i), end = first_not_below(sorted.keys, count, expert * top_k + i + 1);
    slot_counts[expert * top_k + i] += end - begin;
    if (i == 0) range[0] = begin;
    if (i == slots - 1) range[1] = end;
  }
  __syncthreads();
  double sum = 0.0;
#pragma unroll 4
  for (int j = range[0] + static_cast<int>(threadIdx.x); j < range[1]; j += 1024) sum += gates[sorted.items[j]];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) gate_sums[expert] = static_cast<float>(gate_sums[expert] + sum);
}

// Candidates for rebirth: those kept so far (items 0 .. room-1), then the rows of this call (room + row).
__global__ void __launch_bounds__(threads) list_candidates_kernel(Batch batch, const long long* kept, int room, long long* priorities, std::int32_t* items) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= room + batch.rows) return;
  items[i] = static_cast<std::int32_t>(i);
  if (i < room) {
    priorities[i] = kept[i];
  } else {
    const std::int64_t row = i - room;
    priorities[i] = batch.takes(row) ? sample_priority(batch.stream, batch.first_position + row) : kNoSample;
  }
}

// Block n: the n-th smallest candidate.
__global__ void __launch_bounds__(128) take_sample_kernel(SortedLongs sorted, int room, int d, const float* before, const float* query, long long* priorities,
                                                          float* sample) {
  const int place = blockIdx.x;
  const long long priority = sorted.keys[place];
  if (threadIdx.x == 0) priorities[place] = priority;
  if (priority == kNoSample) return;
  const std::int64_t item = sorted.items[place];
  const float* source = item < room ? before + item * d : query + (item - room) * d;
  for (int j = threadIdx.x; j < d; j += blockDim.x) sample[static_cast<std::int64_t>(place) * d + j] = source[j];
}

// All sums to zero in one launch: they are small, and a launch costs more than a megabyte. Every tensor is 32-bit words to it.
struct Cleared {
  std::uint32_t* words[6];
  std::int64_t counts[6];
  long long* priorities;
  int room;
};

__global__ void __launch_bounds__(threads) clear_kernel(Cleared cleared) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x, step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (int n = 0; n < 6; ++n) {
    for (std::int64_t i = first; i < cleared.counts[n]; i += step) cleared.words[n][i] = 0u;
  }
  for (std::int64_t i = first; i < cleared.room; i += step) cleared.priorities[i] = kNoSample;
}

void add_sample(Context& ctx, const Tensor& query, const Batch& batch, KeySums& sums) {
  const int room = static_cast<int>(sums.sample_priority.elements()), d = static_cast<int>(query.dim(1));
  const std::int64_t candidates = room + batch.rows;
  long long* priorities = longs(ctx.scratch({candidates}, DType::i64));
  std::int32_t* items = ints(ctx.scratch({candidates}, DType::i32));
  list_candidates_kernel<<<grid_for(candidates, threads), threads, 0, ctx.cuda->stream>>>(batch, longs(sums.sample_priority), room, priorities, items);
  SOME_CUDA_LAUNCHED();
  const SortedLongs sorted = sort_pairs(ctx, priorities, items, candidates);
  Tensor before = ctx.scratch(sums.sample_queries.shape(), DType::f32);
  before.copy_from(sums.sample_queries);
  take_sample_kernel<<<room, 128, 0, ctx.cuda->stream>>>(sorted, room, d, floats(before), floats(query), longs(sums.sample_priority),
                                                        floats(sums.sample_queries));
  SOME_CUDA_LAUNCHED();
}

}  // namespace

void clear_key_sums(Context& ctx, KeySums& sums) {
  Cleared cleared{};
  int n = 0;
  std::int64_t most = 0;
  for (const Tensor* tensor : {&sums.query_sums, &sums.slot_counts, &sums.gate_sums, &sums.together, &sums.positions, &sums.sample_queries}) {
    if (!*tensor) continue;
    cleared.words[n] = static_cast<std::uint32_t*>(tensor->raw());
    cleared.counts[n] = static_cast<std::int64_t>(tensor->bytes() / 4);
    most = std::max(most, cleared.counts[n++]);
  }
  if (sums.sample_priority) {
    cleared.priorities = longs(sums.sample_priority);
    cleared.room = static_cast<int>(sums.sample_priority.elements());
  }
  const int blocks = static_cast<int>(std::min<std::int64_t>((most + threads - 1) / threads, 4 * ctx.cuda->multiprocessors));
  clear_kernel<<<blocks, threads, 0, ctx.cuda->stream>>>(cleared);
  SOME_CUDA_LAUNCHED();
}

void add_key_sums(Context& ctx, const Tensor& query, const Routing& routing, const Tensor* targets, const SumOptions& options, KeySums& sums) {
  const std::int64_t rows = query.dim(0);
  if (query.dim(1) != sums.query_sums.dim(2) || routing.indices.dim(0) != rows || routing.indices.dim(1) > sums.slot_counts.dim(1) ||
      routing.gates.shape() != routing.indices.shape() || (targets != nullptr && targets->elements() != rows)) {
    failed("key sums {} do not fit queries {} with choices {} and gates {}", sums.query_sums.shape().text(), query.shape().text(),
           routing.indices.shape().text(), routing.gates.shape().text());
  }
  if (rows == 0) return;
  const ArenaScope scope(*ctx.arena);
  Batch batch;
  batch.indices = ints(routing.indices);
  batch.targets = targets != nullptr ? ints(*targets) : nullptr;
  batch.rows = rows;
  batch.slots = static_cast<int>(routing.indices.dim(1));
  batch.top_k = static_cast<int>(sums.slot_counts.dim(1));
  batch.experts = static_cast<int>(sums.slot_counts.dim(0));
  batch.fraction = options.fraction;
  batch.stream = options.stream;
  batch.first_position = options.first_position;
  const std::int64_t choices = rows * batch.slots;
  const std::int32_t keys_end = batch.experts * batch.top_k;
  std::int32_t* keys = ints(ctx.scratch({choices}, DType::i32));
  std::int32_t* items = ints(ctx.scratch({choices}, DType::i32));
  const std::size_t shared = batch.experts <= most_shared_experts ? sizeof(std::int32_t) * batch.experts * batch.experts : 0;
  list_choices_kernel<<<grid_for(rows, threads), threads, shared, ctx.cuda->stream>>>(
      batch, keys, items, reinterpret_cast<unsigned long long*>(longs(sums.positions)), ints(sums.together));
  SOME_CUDA_LAUNCHED();
  const SortedPairs sorted = sort_pairs(ctx, keys, items, choices, bits_for(keys_end));
  expert_sums_kernel<<<batch.experts, 1024, 0, ctx.cuda->stream>>>(sorted, static_cast<int>(choices), batch.slots, batch.top_k, floats(routing.gates),
                                                                  ints(sums.slot_counts), floats(sums.gate_sums));
  SOME_CUDA_LAUNCHED();
  add_segment_sums(ctx, sorted, choices, keys_end, batch.slots, query.raw(), DType::f32, static_cast<int>(query.dim(1)), 1.0f, floats(sums.query_sums));
  if (sums.sample_priority) add_sample(ctx, query, batch, sums);
}

}  // namespace some::cuda
