// The additive sums of spec 4 on the GPU. Choices are first sorted by (expert, slot), so that every sum has one owner
// and a fixed order. Memory traffic: each chosen query is read once per choice (T*k*d*4 bytes), mostly from L2. One
// layer does not fill the GPU, so every kernel handles several at once.
#include <algorithm>

#include "kernels/cuda/toolkit.cuh"
#include "kernels/reduce/segment_sums.h"
#include "keys/key_store.h"

namespace some::cuda {
namespace {

constexpr int threads = 512;
constexpr int max_shared_experts = 96;  // up to here the pair counts fit in a block's shared memory
constexpr int max_layers = 12;          // per launch: their descriptions are kernel arguments, limited to 4 KB
constexpr std::int64_t max_scratch = std::int64_t{128} << 20;  // bytes of partial sums held at a time
constexpr int max_listed = 8192;  // up to this many (expert, slot) pairs a counting sort is used, beyond that CUB

// Expert choices of one layer, and what is computed from them.
struct Batch {
  const std::int32_t* indices;
  const float *gates, *query;
  const std::int32_t* targets;  // null if every row takes part
  std::int64_t rows;
  int slots, top_k, experts;
  UpdateScheduleRule::Plan pace;
  RandomStream sample;
  std::int64_t first_position;
  std::int32_t *keys, *items;     // of each choice, before sorting; the counting sort needs no items (null)
  std::int32_t *counts, *starts;  // for the counting sort; null if CUB sorts
  std::int32_t *sorted_keys, *sorted_items;
  unsigned long long* positions;         // from here on: the sums
  std::int32_t *together, *slot_counts;  // together is null if no rule needs it
  float *gate_sums, *query_sums;

  __device__ bool takes(std::int64_t row) const {
    return (targets == nullptr || targets[row] >= 0) && pace.takes_part(first_position + row);
  }
  // The sort key is expert*top_k + slot. Rows that do not take part get an extra expert number, after all others.
  __host__ __device__ int keys_end() const { return experts * top_k; }
  __host__ __device__ int all_keys() const { return (experts + 1) * top_k; }
};

struct Batches {
  Batch layer[max_layers];
};
static_assert(sizeof(Batches) <= 4000);

// Block (x, y) handles share x of the tokens of layer y. It writes the sort key of every choice and how many of each
// key the block has (counts: [blocks, all_keys], skipped if null), and adds to the number of positions and to the
// counts of experts chosen by the same token. All of these are integers, so atomic additions give the same result in
// any order.
__global__ void __launch_bounds__(threads) list_choices_kernel(const __grid_constant__ Batches batches) {
  extern __shared__ std::int32_t dynamic[];
  const Batch& batch = batches.layer[blockIdx.y];
  std::int32_t *keys = batch.keys, *items = batch.items, *counts = batch.counts, *together = batch.together;
  const int experts = batch.experts, slots = batch.slots;
  const bool pairs_wanted = together != nullptr, pairs_in_shared = pairs_wanted && experts <= max_shared_experts;
  std::int32_t* pairs = dynamic;  // [E, E], only above the diagonal; with many experts it stays in global memory
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
    for (int j = 0; j < i && pairs_wanted; ++j) {
      int pair = -1;
      if (takes && chosen[i] != chosen[j]) pair = min(chosen[i], chosen[j]) * experts + max(chosen[i], chosen[j]);
      // Neighboring tokens often choose the same experts (padding always does), so equal pairs in a warp share one
      // addition.
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
  if (threadIdx.x == 0 && count > 0) atomicAdd(batch.positions, static_cast<unsigned long long>(count));
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

// One block per layer. Turns counts[b, key] into the number of choices of this key in the blocks before b, and sets
// starts[key] to the place of the key's first choice.
__global__ void __launch_bounds__(1024) scan_kernel(const __grid_constant__ Batches batches, int blocks) {
  const Batch& batch = batches.layer[blockIdx.x];
  std::int32_t *counts = batch.counts, *starts = batch.starts;
  const int keys = batch.all_keys();
  __shared__ std::int32_t warp_totals[warp_size];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  std::int32_t before = 0;  // choices of the keys handled in earlier iterations
  for (int base = 0; base < keys; base += 1024) {
    const int key = base + static_cast<int>(threadIdx.x);
    std::int32_t total = 0;
    if (key < keys) {
      constexpr int ahead = 8;  // loads in flight at a time
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
    std::int32_t inside = total;  // becomes the inclusive sum over the warp
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

// Launched with the blocks of list_choices_kernel. The sort is stable: within a key, a choice comes after those of
// earlier blocks, of earlier warps and of earlier lanes.
__global__ void __launch_bounds__(threads) place_kernel(const __grid_constant__ Batches batches) {
  extern __shared__ unsigned short in_warp[];  // [warps, E + 1]: choices of each expert, for the current slot
  const Batch& batch = batches.layer[blockIdx.y];
  const std::int32_t *keys = batch.keys, *counts = batch.counts, *starts = batch.starts;
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
      batch.sorted_keys[place] = key;
      batch.sorted_items[place] = static_cast<std::int32_t>(row * batch.slots + slot);
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

// Block (e, y) counts the choices in each slot of expert e of layer y and sums their gates. If starts is null, a binary
// search finds the first choice of each key.
__global__ void __launch_bounds__(1024) expert_sums_kernel(const __grid_constant__ Batches batches) {
  const Batch& batch = batches.layer[blockIdx.y];
  const std::int32_t* starts = batch.starts;
  const int count = static_cast<int>(batch.rows) * batch.slots, top_k = batch.top_k;
  __shared__ double shared[warp_size];
  __shared__ int range[2];
  const int first = static_cast<int>(blockIdx.x) * top_k;
  for (int i = threadIdx.x; i < top_k; i += blockDim.x) {
    const int begin = starts != nullptr ? starts[first + i] : first_not_below(batch.sorted_keys, count, first + i);
    const int end =
        starts != nullptr ? starts[first + i + 1] : first_not_below(batch.sorted_keys, count, first + i + 1);
    batch.slot_counts[first + i] += end - begin;
    if (i == 0) range[0] = begin;
    if (i == top_k - 1) range[1] = end;
  }
  __syncthreads();
  double sum = 0.0;
#pragma unroll 4
  for (int j = range[0] + static_cast<int>(threadIdx.x); j < range[1]; j += 1024)
    sum += batch.gates[batch.sorted_items[j]];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) batch.gate_sums[blockIdx.x] = static_cast<float>(batch.gate_sums[blockIdx.x] + sum);
}

// Lists candidates for rebirth: the previous sample (items 0 to room-1), followed by the rows of this call (room +
// row).
__global__ void __launch_bounds__(threads)
    list_candidates_kernel(Batch batch, const long long* kept, int room, long long* priorities, std::int32_t* items) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= room + batch.rows) return;
  items[i] = static_cast<std::int32_t>(i);
  if (i < room) {
    priorities[i] = kept[i];
  } else {
    const std::int64_t row = i - room;
    priorities[i] = batch.takes(row) ? sample_priority(batch.sample, batch.first_position + row) : kNoSample;
  }
}

// Block n copies the n-th smallest candidate.
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

// Block n copies the n-th smallest entry of two sorted lists; the earlier list wins ties. An entry's place is its index
// in its own list plus the number of entries of the other list that come before it.
__global__ void __launch_bounds__(128)
    merge_samples_kernel(const long long* earlier, const float* earlier_rows, const long long* later,
                         const float* later_rows, int room, int d, long long* priorities, float* rows) {
  const int place = blockIdx.x;
  // Binary search for the number of the first `place` entries that come from the earlier list: the smallest i such that
  // its entry i belongs after the first place - i entries of the later list.
  int low = 0, high = place;
  while (low < high) {
    const int i = (low + high) / 2;
    if (earlier[i] <= later[place - 1 - i])
      low = i + 1;
    else
      high = i;
  }
  const bool from_earlier = earlier[low] <= later[place - low];
  const int at = from_earlier ? low : place - low;
  const float* source = (from_earlier ? earlier_rows : later_rows) + static_cast<std::int64_t>(at) * d;
  if (threadIdx.x == 0) priorities[place] = from_earlier ? earlier[at] : later[at];
  for (int j = threadIdx.x; j < d; j += blockDim.x) rows[static_cast<std::int64_t>(place) * d + j] = source[j];
}

// Sets all sums of several layers to zero in one launch: they are small, and a launch takes longer than clearing a
// megabyte. Tensors of every type are treated as 32-bit words.
struct Cleared {
  struct Layer {
    std::uint32_t* words[6];
    long long* priorities;
  } layer[max_layers];
  std::int64_t counts[6];
  int room;
};

__global__ void __launch_bounds__(threads) clear_kernel(const __grid_constant__ Cleared cleared) {
  const Cleared::Layer& layer = cleared.layer[blockIdx.y];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x,
                     step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (int n = 0; n < 6; ++n) {
    for (std::int64_t i = first; i < cleared.counts[n]; i += step) layer.words[n][i] = 0u;
  }
  for (std::int64_t i = first; i < cleared.room; i += step) layer.priorities[i] = kNoSample;
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
  ctx.copy(sums.sample_queries, before);
  take_sample_kernel<<<room, 128, 0, ctx.cuda->stream>>>(sorted, room, d, floats(before), floats(query),
                                                         longs(sums.sample_priority), floats(sums.sample_queries));
  SOME_CUDA_LAUNCHED();
}

Batch describe(const LayerChoices& layer, const Tensor* targets) {
  const KeySums& sums = *layer.sums;
  Batch batch{};
  batch.indices = ints(layer.routing.indices);
  batch.gates = floats(layer.routing.gates);
  batch.query = floats(layer.query);
  batch.targets = targets != nullptr ? ints(*targets) : nullptr;
  batch.rows = layer.query.dim(0);
  batch.slots = static_cast<int>(layer.routing.indices.dim(1));
  batch.top_k = static_cast<int>(sums.slot_counts.dim(1));
  batch.experts = static_cast<int>(sums.slot_counts.dim(0));
  const PhoenixRule::Plan& phoenix = layer.plan;
  batch.pace = layer.plan;
  batch.sample = phoenix.sample;
  batch.first_position = layer.first_position;
  batch.positions = reinterpret_cast<unsigned long long*>(longs(sums.positions));
  batch.together = layer.plan.needs.together ? ints(sums.together) : nullptr;
  batch.slot_counts = ints(sums.slot_counts);
  batch.gate_sums = floats(sums.gate_sums);
  batch.query_sums = layer.plan.needs.query_sums ? floats(sums.query_sums) : nullptr;
  return batch;
}

// Takes at most max_layers layers.
void add_layers(Context& ctx, std::span<const LayerChoices> layers, const Tensor* targets) {
  const ArenaScope scope(*ctx.arena);
  const int number = static_cast<int>(layers.size());
  Batches batches{};
  for (int i = 0; i < number; ++i) batches.layer[i] = describe(layers[static_cast<std::size_t>(i)], targets);
  const Batch& any = batches.layer[0];
  const std::int64_t choices = any.rows * any.slots;
  const int block = any.rows > 8192 ? threads : threads / 2;
  const int blocks = grid_for(any.rows, block), all_keys = any.all_keys();
  const std::size_t pair_bytes = any.together != nullptr && any.experts <= max_shared_experts
                                     ? sizeof(std::int32_t) * any.experts * any.experts
                                     : 0;
  const std::size_t place_bytes = sizeof(unsigned short) * (block / warp_size) * (any.experts + 1);
  const bool counting = all_keys <= max_listed / (pair_bytes > 0 ? 4 : 1) && place_bytes <= (48 << 10);
  const auto numbers = [&](std::int64_t count) { return ints(ctx.scratch({count}, DType::i32)); };
  for (int i = 0; i < number; ++i) {
    Batch& batch = batches.layer[i];
    batch.keys = numbers(choices);
    if (counting) {
      batch.counts = numbers(static_cast<std::int64_t>(blocks) * all_keys);
      batch.starts = numbers(all_keys + 1);
      batch.sorted_keys = numbers(choices);
      batch.sorted_items = numbers(choices);
    } else {
      batch.items = numbers(choices);
    }
  }
  const dim3 grid(blocks, number);
  list_choices_kernel<<<grid, block, pair_bytes + (counting ? sizeof(std::int32_t) * all_keys : 0), ctx.cuda->stream>>>(
      batches);
  SOME_CUDA_LAUNCHED();
  if (counting) {
    scan_kernel<<<number, 1024, 0, ctx.cuda->stream>>>(batches, blocks);
    SOME_CUDA_LAUNCHED();
    place_kernel<<<grid, block, place_bytes, ctx.cuda->stream>>>(batches);
    SOME_CUDA_LAUNCHED();
  } else {
    for (int i = 0; i < number; ++i) {
      Batch& batch = batches.layer[i];
      const SortedPairs sorted = sort_pairs(ctx, batch.keys, batch.items, choices, bits_for(all_keys));
      batch.sorted_keys = const_cast<std::int32_t*>(sorted.keys);
      batch.sorted_items = const_cast<std::int32_t*>(sorted.items);
    }
  }
  expert_sums_kernel<<<dim3(any.experts, number), 1024, 0, ctx.cuda->stream>>>(batches);
  SOME_CUDA_LAUNCHED();
  if (any.query_sums != nullptr) {
    SegmentSums segments[max_layers];
    for (int i = 0; i < number; ++i) {
      const Batch& batch = batches.layer[i];
      segments[i] = {{batch.sorted_keys, batch.sorted_items}, batch.query, batch.query_sums};
    }
    const int d = static_cast<int>(layers[0].query.dim(1));
    add_segment_sums(ctx, std::span(segments, layers.size()), choices, any.keys_end(), any.slots, DType::f32, d, 1.0f);
  }
  for (int i = 0; i < number; ++i) {
    const LayerChoices& layer = layers[static_cast<std::size_t>(i)];
    if (layer.plan.needs.sample) add_sample(ctx, layer.query, batches.layer[i], *layer.sums);
  }
}

}  // namespace

void merge_samples(Context& ctx, const KeySums& earlier, KeySums& sums) {
  const ArenaScope scope(*ctx.arena);
  const int room = static_cast<int>(sums.sample_priority.elements()), d = static_cast<int>(sums.sample_queries.dim(1));
  Tensor own_priority = ctx.scratch({room}, DType::i64), own_queries = ctx.scratch({room, d}, DType::f32);
  ctx.copy(sums.sample_priority, own_priority);
  ctx.copy(sums.sample_queries, own_queries);
  merge_samples_kernel<<<room, 128, 0, ctx.cuda->stream>>>(
      longs(earlier.sample_priority), floats(earlier.sample_queries), longs(own_priority), floats(own_queries), room, d,
      longs(sums.sample_priority), floats(sums.sample_queries));
  SOME_CUDA_LAUNCHED();
}

void clear_key_sums(Context& ctx, std::span<KeySums> layers) {
  for (std::size_t begin = 0; begin < layers.size(); begin += max_layers) {
    const std::span<KeySums> part = layers.subspan(begin, std::min<std::size_t>(max_layers, layers.size() - begin));
    Cleared cleared{};
    std::int64_t most = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const KeySums& sums = part[i];
      const Tensor* tensors[6] = {&sums.query_sums, &sums.slot_counts, &sums.gate_sums,
                                  &sums.together,   &sums.positions,   &sums.sample_queries};
      for (int n = 0; n < 6; ++n) {
        const Tensor& tensor = *tensors[n];
        const std::int64_t count = tensor ? static_cast<std::int64_t>(tensor.bytes() / 4) : 0;
        if (i > 0 && count != cleared.counts[n])
          failed(Code::shape_mismatch, "key sums of layers of different shapes cannot be cleared together");
        cleared.layer[i].words[n] = tensor ? static_cast<std::uint32_t*>(tensor.raw()) : nullptr;
        cleared.counts[n] = count;
        most = std::max(most, count);
      }
      if (sums.sample_priority) {
        cleared.layer[i].priorities = longs(sums.sample_priority);
        cleared.room = static_cast<int>(sums.sample_priority.elements());
      }
    }
    const int blocks =
        static_cast<int>(std::min<std::int64_t>((most + threads - 1) / threads, 4 * ctx.cuda->multiprocessors));
    clear_kernel<<<dim3(blocks, static_cast<unsigned>(part.size())), threads, 0, ctx.cuda->stream>>>(cleared);
    SOME_CUDA_LAUNCHED();
  }
}

void add_key_sums(Context& ctx, std::span<const LayerChoices> layers, const Tensor* targets) {
  if (layers.empty()) return;
  check_key_choices(layers, targets);
  const LayerChoices& first = layers[0];
  const std::int64_t rows = first.query.dim(0);
  if (rows == 0) return;
  const std::int64_t bytes =
      segment_sums_bytes(rows * first.routing.indices.dim(1), static_cast<int>(first.query.dim(1)));
  const std::size_t together =
      static_cast<std::size_t>(std::clamp<std::int64_t>(max_scratch / std::max<std::int64_t>(bytes, 1), 1, max_layers));
  for (std::size_t begin = 0; begin < layers.size(); begin += together)
    add_layers(ctx, layers.subspan(begin, std::min(together, layers.size() - begin)), targets);
}

}  // namespace some::cuda
