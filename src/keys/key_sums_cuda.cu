// The additive sums of spec 4 on the GPU. Choices are sorted by (expert, slot); then every sum has one owner and a
// fixed order. Bytes moved: each chosen query once a choice (T*k*d*4), mostly from L2.
#include <algorithm>

#include "keys/key_store.h"
#include "keys/rules.h"
#include "ops/cuda_kernels.h"
#include "ops/segment_sums.h"

namespace some::cuda {
namespace {

constexpr int threads = 512;
constexpr int most_shared_experts = 96;  // whose pair counts fit in a block's shared memory
constexpr int most_listed = 8192;        // (expert, slot) pairs that the counting sort takes; beyond, CUB sorts

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
  // Choices are sorted by expert*top_k + slot; those of rows that do not take part stand behind all experts.
  __host__ __device__ int keys_end() const { return experts * top_k; }
  __host__ __device__ int all_keys() const { return (experts + 1) * top_k; }
};

// The sort key of every choice, how many of each key this block has (counts: [blocks, all_keys], not written when
// null), the number of positions, and how often two experts were chosen by one token. Whole numbers: atomic additions
// give the same result in any order.
__global__ void __launch_bounds__(threads)
    list_choices_kernel(Batch batch, std::int32_t* keys, std::int32_t* items, std::int32_t* counts,
                        unsigned long long* positions, std::int32_t* together) {
  extern __shared__ std::int32_t dynamic[];
  const int experts = batch.experts, slots = batch.slots;
  const bool pairs_in_shared = experts <= most_shared_experts;
  std::int32_t* pairs = dynamic;  // [E, E], the part above the diagonal; not used with many experts
  std::int32_t* histogram = dynamic + (pairs_in_shared ? experts * experts : 0);
  const int used = (pairs_in_shared ? experts * experts : 0) + (counts != nullptr ? batch.all_keys() : 0);
  for (int i = threadIdx.x; i < used; i += blockDim.x) dynamic[i] = 0;
  __syncthreads();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool here = row < batch.rows;
  const bool takes = here && batch.takes(row);
  const std::int32_t* chosen = batch.indices + row * slots;
  for (int i = 0; i < slots; ++i) {
    if (here) {
      const int key = (takes ? chosen[i] : experts) * batch.top_k + i;
      keys[row * slots + i] = key;
      if (items != nullptr) items[row * slots + i] = static_cast<std::int32_t>(row * slots + i);
      if (counts != nullptr) atomicAdd(histogram + key, 1);
    }
    for (int j = 0; j < i; ++j) {
      int pair = -1;
      if (takes && chosen[i] != chosen[j]) pair = min(chosen[i], chosen[j]) * experts + max(chosen[i], chosen[j]);
      // Tokens that stand together often choose alike (padding does): one addition for all of a warp that do.
      const unsigned alike = __match_any_sync(full_warp, pair);
      if (pair < 0 || __ffs(static_cast<int>(alike)) - 1 != static_cast<int>(threadIdx.x) % warp_size) continue;
      if (pairs_in_shared) {
        atomicAdd(pairs + pair, __popc(alike));
      } else {
        atomicAdd(together + pair, __popc(alike));
        atomicAdd(together + pair % experts * experts + pair / experts, __popc(alike));
      }
    }
  }
  const int count = __syncthreads_count(takes);
  if (threadIdx.x == 0 && count > 0) atomicAdd(positions, static_cast<unsigned long long>(count));
  if (counts != nullptr) {
    for (int i = threadIdx.x; i < batch.all_keys(); i += blockDim.x)
      counts[static_cast<std::int64_t>(blockIdx.x) * batch.all_keys() + i] = histogram[i];
  }
  if (!pairs_in_shared) return;
  for (int i = threadIdx.x; i < experts * experts; i += blockDim.x) {
    if (pairs[i] == 0) continue;
    atomicAdd(together + i, pairs[i]);
    atomicAdd(together + i % experts * experts + i / experts, pairs[i]);
  }
}

// One block. counts[b, key] becomes the number of choices of this key in the blocks before b; starts[key] the place of
// its first choice.
__global__ void __launch_bounds__(1024) scan_kernel(std::int32_t* counts, int blocks, int keys, std::int32_t* starts) {
  __shared__ std::int32_t warp_totals[warp_size];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  std::int32_t before = 0;  // choices of all keys of the rounds before
  for (int base = 0; base < keys; base += 1024) {
    const int key = base + static_cast<int>(threadIdx.x);
    std::int32_t total = 0;
    if (key < keys) {
      constexpr int ahead = 8;  // loads under way together
      for (int first = 0; first < blocks; first += ahead) {
        std::int32_t count[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i)
          count[i] = first + i < blocks ? counts[static_cast<std::int64_t>(first + i) * keys + key] : 0;
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
          if (first + i < blocks) counts[static_cast<std::int64_t>(first + i) * keys + key] = total;
          total += count[i];
        }
      }
    }
    std::int32_t inside = total;  // inclusive over the warp
#pragma unroll
    for (int offset = 1; offset < warp_size; offset *= 2) {
      const std::int32_t other = __shfl_up_sync(full_warp, inside, offset);
      if (lane >= offset) inside += other;
    }
    __syncthreads();
    if (lane == warp_size - 1) warp_totals[warp] = inside;
    __syncthreads();
    std::int32_t warps_before = 0, all = 0;
    for (int w = 0; w < warp_size; ++w) {
      if (w < warp) warps_before += warp_totals[w];
      all += warp_totals[w];
    }
    if (key < keys) starts[key] = before + warps_before + inside - total;
    before += all;
  }
  if (threadIdx.x == 0) starts[keys] = before;
}

// The same blocks as list_choices_kernel. Tokens keep their order within a key: a choice stands behind those of the
// blocks before, of the warps before, and of the lanes before.
__global__ void __launch_bounds__(threads)
    place_kernel(Batch batch, const std::int32_t* keys, const std::int32_t* counts, const std::int32_t* starts,
                 std::int32_t* sorted_keys, std::int32_t* sorted_items) {
  extern __shared__ unsigned short in_warp[];  // [warps, E + 1] of one slot
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size, warps = blockDim.x / warp_size,
            buckets = batch.experts + 1;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool here = row < batch.rows;
  for (int slot = 0; slot < batch.slots; ++slot) {
    const int key = here ? keys[row * batch.slots + slot] : -1;
    const int bucket = here ? key / batch.top_k : -1;
    for (int i = threadIdx.x; i < warps * buckets; i += blockDim.x) in_warp[i] = 0;
    __syncthreads();
    const unsigned alike = __match_any_sync(full_warp, bucket);
    const int rank = __popc(alike & ((1u << lane) - 1u));
    if (here && rank == 0) in_warp[warp * buckets + bucket] = static_cast<unsigned short>(__popc(alike));
    __syncthreads();
    if (here) {
      int place = starts[key] + counts[static_cast<std::int64_t>(blockIdx.x) * batch.all_keys() + key] + rank;
      for (int w = 0; w < warp; ++w) place += in_warp[w * buckets + bucket];
      sorted_keys[place] = key;
      sorted_items[place] = static_cast<std::int32_t>(row * batch.slots + slot);
    }
    __syncthreads();
  }
}

__device__ int first_not_below(const std::int32_t* keys, int count, std::int32_t key) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (keys[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Block e: how many choices each slot of expert e has, and the sum of their gates. starts may be null: then the places
// are searched.
__global__ void __launch_bounds__(1024)
    expert_sums_kernel(SortedPairs sorted, int count, int top_k, const std::int32_t* starts, const float* gates,
                       std::int32_t* slot_counts, float* gate_sums) {
  __shared__ double shared[warp_size];
  __shared__ int range[2];
  const int first = static_cast<int>(blockIdx.x) * top_k;
  for (int i = threadIdx.x; i < top_k; i += blockDim.x) {
    const int begin = starts != nullptr ? starts[first + i] : first_not_below(sorted.keys, count, first + i);
    const int end = starts != nullptr ? starts[first + i + 1] : first_not_below(sorted.keys, count, first + i + 1);
    slot_counts[first + i] += end - begin;
    if (i == 0) range[0] = begin;
    if (i == top_k - 1) range[1] = end;
  }
  __syncthreads();
  double sum = 0.0;
#pragma unroll 4
  for (int j = range[0] + static_cast<int>(threadIdx.x); j < range[1]; j += 1024) sum += gates[sorted.items[j]];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) gate_sums[blockIdx.x] = static_cast<float>(gate_sums[blockIdx.x] + sum);
}

// Candidates for rebirth: those kept so far (items 0 .. room-1), then the rows of this call (room + row).
__global__ void __launch_bounds__(threads)
    list_candidates_kernel(Batch batch, const long long* kept, int room, long long* priorities, std::int32_t* items) {
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
__global__ void __launch_bounds__(128) take_sample_kernel(SortedLongs sorted, int room, int d, const float* before,
                                                          const float* query, long long* priorities, float* sample) {
  const int place = blockIdx.x;
  const long long priority = sorted.keys[place];
  if (threadIdx.x == 0) priorities[place] = priority;
  if (priority == kNoSample) return;
  const std::int64_t item = sorted.items[place];
  const float* source = item < room ? before + item * d : query + (item - room) * d;
  for (int j = threadIdx.x; j < d; j += blockDim.x) sample[static_cast<std::int64_t>(place) * d + j] = source[j];
}

// All sums to zero in one launch: they are small, and a launch costs more than a megabyte. Every tensor is 32-bit words
// to it.
struct Cleared {
  std::uint32_t* words[6];
  std::int64_t counts[6];
  long long* priorities;
  int room;
};

__global__ void __launch_bounds__(threads) clear_kernel(Cleared cleared) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x,
                     step = static_cast<std::int64_t>(gridDim.x) * threads;
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
  list_candidates_kernel<<<grid_for(candidates, threads), threads, 0, ctx.cuda->stream>>>(
      batch, longs(sums.sample_priority), room, priorities, items);
  SOME_CUDA_LAUNCHED();
  const SortedLongs sorted = sort_pairs(ctx, priorities, items, candidates);
  Tensor before = ctx.scratch(sums.sample_queries.shape(), DType::f32);
  before.copy_from(sums.sample_queries);
  take_sample_kernel<<<room, 128, 0, ctx.cuda->stream>>>(sorted, room, d, floats(before), floats(query),
                                                         longs(sums.sample_priority), floats(sums.sample_queries));
  SOME_CUDA_LAUNCHED();
}

}  // namespace

void clear_key_sums(Context& ctx, KeySums& sums) {
  Cleared cleared{};
  int n = 0;
  std::int64_t most = 0;
  for (const Tensor* tensor :
       {&sums.query_sums, &sums.slot_counts, &sums.gate_sums, &sums.together, &sums.positions, &sums.sample_queries}) {
    if (!*tensor) continue;
    cleared.words[n] = static_cast<std::uint32_t*>(tensor->raw());
    cleared.counts[n] = static_cast<std::int64_t>(tensor->bytes() / 4);
    most = std::max(most, cleared.counts[n++]);
  }
  if (sums.sample_priority) {
    cleared.priorities = longs(sums.sample_priority);
    cleared.room = static_cast<int>(sums.sample_priority.elements());
  }
  const int blocks =
      static_cast<int>(std::min<std::int64_t>((most + threads - 1) / threads, 4 * ctx.cuda->multiprocessors));
  clear_kernel<<<blocks, threads, 0, ctx.cuda->stream>>>(cleared);
  SOME_CUDA_LAUNCHED();
}

void add_key_sums(Context& ctx, const Tensor& query, const Routing& routing, const Tensor* targets,
                  const SumOptions& options, KeySums& sums) {
  const std::int64_t rows = query.dim(0);
  if (query.dim(1) != sums.query_sums.dim(2) || routing.indices.dim(0) != rows ||
      routing.indices.dim(1) > sums.slot_counts.dim(1) || routing.gates.shape() != routing.indices.shape() ||
      (targets != nullptr && targets->elements() != rows)) {
    failed("key sums {} do not fit queries {} with choices {} and gates {}", sums.query_sums.shape().text(),
           query.shape().text(), routing.indices.shape().text(), routing.gates.shape().text());
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
  const int block = rows > 8192 ? threads : threads / 2;
  const int blocks = grid_for(rows, block), all_keys = batch.all_keys();
  const std::size_t pair_bytes =
      batch.experts <= most_shared_experts ? sizeof(std::int32_t) * batch.experts * batch.experts : 0;
  const std::size_t place_bytes = sizeof(unsigned short) * (block / warp_size) * (batch.experts + 1);
  const bool counting = all_keys <= most_listed / (pair_bytes > 0 ? 4 : 1) && place_bytes <= (48 << 10);
  auto* positions = reinterpret_cast<unsigned long long*>(longs(sums.positions));
  std::int32_t* keys = ints(ctx.scratch({choices}, DType::i32));
  SortedPairs sorted;
  std::int32_t* starts = nullptr;
  if (counting) {
    std::int32_t* counts = ints(ctx.scratch({blocks, all_keys}, DType::i32));
    std::int32_t* sorted_keys = ints(ctx.scratch({choices}, DType::i32));
    std::int32_t* sorted_items = ints(ctx.scratch({choices}, DType::i32));
    starts = ints(ctx.scratch({all_keys + 1}, DType::i32));
    list_choices_kernel<<<blocks, block, pair_bytes + sizeof(std::int32_t) * all_keys, ctx.cuda->stream>>>(
        batch, keys, nullptr, counts, positions, ints(sums.together));
    SOME_CUDA_LAUNCHED();
    scan_kernel<<<1, 1024, 0, ctx.cuda->stream>>>(counts, blocks, all_keys, starts);
    SOME_CUDA_LAUNCHED();
    place_kernel<<<blocks, block, place_bytes, ctx.cuda->stream>>>(batch, keys, counts, starts, sorted_keys,
                                                                   sorted_items);
    SOME_CUDA_LAUNCHED();
    sorted = {sorted_keys, sorted_items};
  } else {
    std::int32_t* items = ints(ctx.scratch({choices}, DType::i32));
    list_choices_kernel<<<blocks, block, pair_bytes, ctx.cuda->stream>>>(batch, keys, items, nullptr, positions,
                                                                         ints(sums.together));
    SOME_CUDA_LAUNCHED();
    sorted = sort_pairs(ctx, keys, items, choices, bits_for(all_keys));
  }
  expert_sums_kernel<<<batch.experts, 1024, 0, ctx.cuda->stream>>>(sorted, static_cast<int>(choices), batch.top_k,
                                                                   starts, floats(routing.gates),
                                                                   ints(sums.slot_counts), floats(sums.gate_sums));
  SOME_CUDA_LAUNCHED();
  add_segment_sums(ctx, sorted, choices, batch.keys_end(), batch.slots, query.raw(), DType::f32,
                   static_cast<int>(query.dim(1)), 1.0f, floats(sums.query_sums));
  if (sums.sample_priority) add_sample(ctx, query, batch, sums);
}

}  // namespace some::cuda
