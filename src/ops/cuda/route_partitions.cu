// Top-k routing over the keys of some partitions (spec 3.3), in fp32: the mean key of each partition (each key is read
// once), the nearest partitions of each token (route_forward over the means), then one block per token that scores the
// keys of its partitions: probe * E / count * d * 4 bytes per token, mostly from L2.
#include "kernels/cuda/toolkit.cuh"
#include "ops/cuda/route_top_k.cuh"
#include "ops/route.h"

namespace some::cuda {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / warp_size;
constexpr int max_choices = warp_size;

// One block per partition; each thread sums columns over its keys, in double precision, in order.
__global__ void __launch_bounds__(threads)
    partition_means_kernel(const float* keys, const float* bias, std::int64_t experts, int d, float* means,
                           float* favours) {
  const std::int64_t p = blockIdx.x, count = gridDim.x, begin = partition_begin(p, experts, count),
                     end = partition_begin(p + 1, experts, count);
  const double share = 1.0 / static_cast<double>(end - begin);
  for (int j = threadIdx.x; j < d; j += threads) {
    double sum = 0.0;
#pragma unroll 4
    for (std::int64_t e = begin; e < end; ++e) sum += static_cast<double>(keys[e * d + j]);
    means[p * d + j] = static_cast<float>(sum * share);
  }
  if (threadIdx.x != 0) return;
  double favour = 0.0;
  if (bias != nullptr) {
    for (std::int64_t e = begin; e < end; ++e) {
      if (bias[e] > static_cast<float>(never_chosen)) favour += static_cast<double>(bias[e]);
    }
  }
  favours[p] = static_cast<float>(favour * share);
}

// A candidate as an integer that is larger if it is better; equal ranks go to the lower expert. 0 is none.
__device__ __forceinline__ unsigned long long candidate_of(unsigned rank, std::int64_t expert) {
  return static_cast<unsigned long long>(rank) << 32 | (0xFFFFFFFFu - static_cast<unsigned>(expert));
}

// The best candidates that a warp has seen: lane i holds the i-th.
struct WarpBest {
  unsigned long long candidate = 0;
  float score = 0.0f;

  // All lanes pass the same candidate.
  __device__ void add(unsigned long long next, float next_score, int k) {
    const int lane = threadIdx.x % warp_size;
    const unsigned better = __ballot_sync(full_warp, lane < k && candidate > next);
    const int place = __popc(better);  // the better ones come first
    if (place >= k) return;
    const unsigned long long above = __shfl_up_sync(full_warp, candidate, 1);
    const float score_above = __shfl_up_sync(full_warp, score, 1);
    if (lane > place) candidate = above, score = score_above;
    if (lane == place) candidate = next, score = next_score;
  }
};

__global__ void __launch_bounds__(threads)
    search_kernel(const float* query, const float* keys, const float* bias, const float* temperature,
                  const std::int32_t* searched, std::int64_t experts, int count, int probe, int d, int k,
                  std::int32_t* indices, float* scores, float* gates) {
  extern __shared__ float own[];  // the query
  __shared__ unsigned long long candidates[warps][max_choices];
  __shared__ float candidate_scores[warps][max_choices];
  const std::int64_t row = blockIdx.x;
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  for (int j = threadIdx.x; j < d; j += threads) own[j] = query[row * d + j];
  __syncthreads();
  WarpBest best;
  for (int i = 0; i < probe; ++i) {
    const std::int64_t p = searched[row * probe + i], begin = partition_begin(p, experts, count),
                       end = partition_begin(p + 1, experts, count);
    for (std::int64_t e = begin + warp; e < end; e += warps) {
      float sum = 0.0f;
      for (int j = lane; j < d; j += warp_size) sum = fmaf(own[j], keys[e * d + j], sum);
      sum = warp_sum(sum);
      best.add(candidate_of(rank_of(bias != nullptr ? sum + bias[e] : sum), e), sum, k);
    }
  }
  candidates[warp][lane] = best.candidate;
  candidate_scores[warp][lane] = best.score;
  __syncthreads();
  if (warp != 0) return;
  WarpBest all;
  for (int w = 0; w < warps; ++w) {
    for (int i = 0; i < k; ++i) {
      if (candidates[w][i] != 0) all.add(candidates[w][i], candidate_scores[w][i], k);
    }
  }
  const bool mine = lane < k;
  const float scaled = mine ? all.score / temperature[0] : -INFINITY;
  const float highest = warp_max(scaled);
  const float weight = mine ? expf(scaled - highest) : 0.0f;
  const float sum = warp_sum(weight);
  if (!mine) return;
  indices[row * k + lane] = static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<unsigned>(all.candidate));
  scores[row * k + lane] = all.score;
  gates[row * k + lane] = weight / sum;
}

}  // namespace

void route_partitions_forward(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias,
                              const Tensor& temperature, const KeyPartitions& partitions, Routing& routing) {
  const std::int64_t rows = query.dim(0), experts = keys.dim(0);
  const int d = static_cast<int>(query.dim(1)), k = static_cast<int>(routing.indices.dim(1)), count = partitions.count,
            probe = std::min(partitions.probe, partitions.count);
  if (probe * (experts / count) < k)
    failed(Code::index_out_of_range, "cannot choose {} experts in {} of {} partitions of {}", k, probe, count, experts);
  if (k > max_choices)
    failed(Code::size_unsupported, "a GPU chooses at most {} experts per token from partitions, not {}", max_choices,
           k);
  if (rows == 0) return;
  const ArenaScope scope(*ctx.arena);
  const Tensor means = ctx.scratch({count, d}, DType::f32), favours = ctx.scratch({count}, DType::f32);
  const float* favour = bias != nullptr ? floats(*bias) : nullptr;
  partition_means_kernel<<<count, threads, 0, ctx.cuda->stream>>>(floats(keys), favour, experts, d, floats(means),
                                                                  floats(favours));
  SOME_CUDA_LAUNCHED();
  Routing searched{ctx.scratch({rows, probe}, DType::i32), ctx.scratch({rows, probe}, DType::f32),
                   ctx.scratch({rows, probe}, DType::f32)};
  cuda::route_forward(ctx, query, means, bias != nullptr ? &favours : nullptr, temperature, false, searched);
  search_kernel<<<static_cast<unsigned>(rows), threads, static_cast<std::size_t>(d) * sizeof(float),
                  ctx.cuda->stream>>>(floats(query), floats(keys), favour, floats(temperature), ints(searched.indices),
                                      experts, count, probe, d, k, ints(routing.indices), floats(routing.scores),
                                      floats(routing.gates));
  SOME_CUDA_LAUNCHED();
}

}  // namespace some::cuda
