// Code shared by search, refinement and slot_weights on the GPU.
#pragma once

#include <functional>

#include "memory/cuda/store.cuh"

namespace some::cuda {

constexpr int max_betas_of_kernel = static_cast<int>(max_betas);

struct Betas {
  float of[max_betas_of_kernel];
  int count;
  __device__ float binary(int s) const { return of[s] * 1.44269504f; }  // for exp2
};
inline Betas betas(const MemorySettings& settings) {
  Betas out{};
  out.count = static_cast<int>(settings.beta.size());
  for (int i = 0; i < out.count; ++i) out.of[i] = static_cast<float>(settings.beta[static_cast<std::size_t>(i)]);
  return out;
}

// Returns the weight of each slot apart from its key, [reach]: a power of its count, and 0 for empty slots. In the
// arena, or the counts themselves.
const float* masses(Context& ctx, const Store& store, const MemorySettings& settings);

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

// The slots as read by the search.
struct SlotContents {
  const float *counts, *entry_counts;
  const std::int32_t* values;
  std::int64_t slots;
  int entries;

  __device__ float part_of(std::int64_t slot, std::int32_t token) const {
    float part[1];
    parts_of(slot, slot + 1, token, part);
    return part[0];
  }
  // Computes a token's fraction of each of COUNT slots, `threads` apart, if slots can hold several tokens. 0 for slots
  // from `end` on. Many loads are in flight at once.
  template <int COUNT>
  __device__ void parts_of(std::int64_t slot, std::int64_t end, std::int32_t token, float (&part)[COUNT]) const {
    static_assert(COUNT <= 32);
    constexpr int together = 2;
    int entry[COUNT];
    unsigned open = 0;  // one bit per slot whose entries may still hold the token
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
          if (value[e][i] < 0 || value[e][i] == token) open &= ~(1u << i);  // free entries come after the others
        }
      }
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const std::int64_t own = slot + i * threads;
      part[i] = entry[i] < 0 ? 0.0f : entry_counts[entry[i] * slots + own] / fmaxf(counts[own], 1.0f);
    }
  }
};

inline SlotContents contents_of(const Store& store) {
  return {floats(store.counts), floats(store.entry_counts_or_totals()), ints(store.values), store.slots(),
          static_cast<int>(store.entries())};
}

// Writes the result for an empty store: assigned or nearest slots, products, and target_prob [beta_count, T], which may
// be null.
void write_no_match(Context& ctx, std::int64_t positions, int beta_count, float* target_prob, std::int32_t* nearest,
                    float* product, unsigned long long* near);

// Starts a search. found.near is available to work queued next on the context. If the returned function is not empty,
// the other results are available after it was called with a stream that waits for the context's stream; it combines
// partial sums in arena memory, which must stay valid until then.
using Combine = std::function<void(cudaStream_t)>;
Combine begin_search(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                     const Tensor& targets, Matches& found);

// Calls work(scores, begins, last) with the scores of all rows and the slots they search, a range of slots at a time.
template <typename Work>
void for_each_score_block(Context& ctx, const Store& store, const MemorySettings& settings, const float* rows,
                          std::int64_t count, const Work& work) {
  if (searches_some_partitions(store, settings)) {
    const auto nprobe = static_cast<int>(partitions_to_search(store, settings));
    const std::int64_t size = store.partition_size();
    const PartitionVisits visits =
        make_visits(ctx, store, choose_partitions(ctx, store, rows, count, nprobe), count, nprobe);
    const std::int64_t widest = partition_slots_at_once(size, visits.count);
    float* scores = floats(ctx.scratch({visits.count, widest}, DType::f32));
    for (std::int64_t first = 0; first < size; first += widest) {
      const std::int64_t width = std::min(size - first, widest);
      score_partitions(ctx, store, rows, visits, first, width, scores);
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

}  // namespace some::cuda
