// The memory on the GPU, all in fp32. For a window of T positions and M slots: the product of queries and keys (2 T M d
// FLOPs) with the sums of weights (memory/cuda/search.cu), and one block per position for the update
// (memory/cuda/update.cu). With merge-on-evict, a second product compares the keys of evicted slots with all keys.
// Nothing is read back in between.
#include "memory/cuda/search.cuh"

namespace some::cuda {
namespace {

// One block per row.
template <typename T>
__global__ void __launch_bounds__(threads) queries_kernel(const T* states, const float* mean, float* queries, int d) {
  wait_previous_kernel_no_trigger();
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

// One block per row; `weights` holds the scores at first.
__global__ void __launch_bounds__(threads) weights_kernel(float* weights, const float* scores, const float* mass,
                                                          std::int64_t reach, Betas beta, const float* memory_weights) {
  wait_previous_kernel_no_trigger();
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
  for (int s = 0; s < beta.count; ++s) {
    const float sharp = beta.of[s], shift = sharp * highest;
    float all = 0.0f;
    for (std::int64_t m = threadIdx.x; m < reach; m += threads) all += mass[m] * expf(sharp * row[m] - shift);
    const float factor = memory_weights[blockIdx.x * beta.count + s] / block_sum(all, partial);
    for (std::int64_t m = threadIdx.x; m < reach; m += threads)
      result[m] += factor * mass[m] * expf(sharp * row[m] - shift);
  }
}

// The same if a row searches only some partitions: scores [visits, part size].
__global__ void __launch_bounds__(threads)
    partition_weights_kernel(float* weights, const float* scores, const float* mass, std::int64_t reach,
                             PartitionVisits visits, Betas beta, const float* memory_weights) {
  wait_previous_kernel_no_trigger();
  __shared__ float partial[warp_size];
  const int size = visits.partition_size, row = blockIdx.x;
  float* result = weights + row * reach;
  for (std::int64_t m = threadIdx.x; m < reach; m += threads) result[m] = 0.0f;
  // Calls work(slot, score) for this thread's slots in every partition the row searches.
  const auto each = [&](auto work) {
    for (int i = 0; i < visits.nprobe; ++i) {
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
  __syncthreads();  // another thread may have written the zero that this one adds to
  for (int s = 0; s < beta.count; ++s) {
    const float sharp = beta.of[s], shift = sharp * highest;
    float all = 0.0f;
    each([&](std::int32_t slot, float score) { all += mass[slot] * expf(sharp * score - shift); });
    const float factor = memory_weights[row * beta.count + s] / block_sum(all, partial);
    each([&](std::int32_t slot, float score) { result[slot] += factor * mass[slot] * expf(sharp * score - shift); });
  }
}

// Refinement: one block per position, like search_kernel; keeps the best slot so far.
__global__ void __launch_bounds__(threads)
    assign_slots_kernel(Scores scores, SlotContents contents, const std::int32_t* targets, float of_token, bool begins,
                        std::int32_t* assigned_slots, float* best_score) {
  wait_previous_kernel_no_trigger();
  __shared__ Near nearest_of[warps];
  const int t = blockIdx.x, searches = scores.searches();
  const std::int32_t target = targets[t];
  Near mine = nothing_near();
  for (int which = 0; which < searches && target >= 0; ++which) {
    const float* row = nullptr;
    std::int32_t first = 0;
    if (!scores.of_row(t, which, row, first)) continue;
    for (int m = threadIdx.x; m < scores.width; m += threads) {
      if (!(contents.counts[first + m] > 0.0f)) continue;
      const float part = contents.part_of(first + m, target);
      if (contents.entries == 1 && !(part > 0.0f)) continue;  // it cannot hold another token
      mine.consider({row[m] + of_token * part, first + m});
    }
  }
  mine = block_nearest(mine, nearest_of);
  if (threadIdx.x != 0) return;
  Near found{begins ? 0.0f : best_score[t], begins ? -1 : assigned_slots[t]};
  found.consider(mine);
  assigned_slots[t] = found.slot;
  best_score[t] = found.product;
}

}  // namespace

void make_queries(Context& ctx, const Tensor& states, const Tensor& mean, Tensor& queries) {
  if (states.dim(0) == 0) return;
  with_real_type(states.dtype(), "the memory's query", [&](auto zero) {
    using T = decltype(zero);
    launch_dependent(ctx, queries_kernel<T>, dim3(static_cast<unsigned>(states.dim(0))), dim3(threads), 0,
                     elements_of<T>(states), floats(mean), floats(queries), static_cast<int>(mean.dim(0)));
  });
}

void assign_slots(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& targets, Tensor& assigned_slots) {
  const std::int64_t positions = queries.dim(0);
  if (positions == 0) return;
  ArenaScope scope(*ctx.arena);
  float* best_score = floats(ctx.scratch({positions}, DType::f32));
  if (store.reach == 0) {
    write_no_match(ctx, positions, 0, best_score, ints(assigned_slots), best_score, nullptr);
    return;
  }
  const SlotContents contents = contents_of(store);
  for_each_score_block(ctx, store, settings, floats(queries), positions, [&](const Scores& scores, bool begins, bool) {
    launch_dependent(ctx, assign_slots_kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0, scores,
                     contents, ints(targets), static_cast<float>(token_affinity), begins, ints(assigned_slots),
                     best_score);
  });
}

void slot_weights(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                  const Tensor& memory_weights, Tensor& weights) {
  if (store.reach == 0 || queries.dim(0) == 0) return;
  ArenaScope scope(*ctx.arena);
  const float* mass = masses(ctx, store, settings);
  if (searches_some_partitions(store, settings)) {
    const auto nprobe = static_cast<int>(partitions_to_search(store, settings));
    const std::int64_t rows = queries.dim(0), size = store.partition_size();
    const PartitionVisits visits =
        make_visits(ctx, store, choose_partitions(ctx, store, floats(queries), rows, nprobe), rows, nprobe);
    float* found = floats(ctx.scratch({visits.count, size}, DType::f32));
    score_partitions(ctx, store, floats(queries), visits, 0, size, found);
    launch_dependent(ctx, partition_weights_kernel, dim3(static_cast<unsigned>(rows)), dim3(threads), 0,
                     floats(weights), found, mass, store.reach, visits, betas(settings), floats(memory_weights));
    return;
  }
  float* scores = floats(ctx.scratch({queries.dim(0), store.reach}, DType::f32));
  score(ctx, store, floats(queries), queries.dim(0), 0, store.reach, scores);
  launch_dependent(ctx, weights_kernel, dim3(static_cast<unsigned>(queries.dim(0))), dim3(threads), 0, floats(weights),
                   scores, mass, store.reach, betas(settings), floats(memory_weights));
}

}  // namespace some::cuda
