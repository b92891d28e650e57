// Queries, scores and top-k routing, all in fp32, with one warp per token and its row in registers. The scores have the
// accuracy of an fp32 GEMM (never TF32), so that the choice does not depend on the model's precision.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/reduce/column_sums.h"
#include "ops/cuda/route_scores.h"
#include "ops/cuda/route_top_k.cuh"
#include "ops/elementwise.h"
#include "ops/hash_choice.h"
#include "ops/route.h"
#include "runtime/row_products.h"

namespace some::cuda {
namespace {

constexpr float shortest = 1e-12f;  // spec 3.2
constexpr int threads = 256;
constexpr int warps = threads / warp_size;

__device__ __forceinline__ std::int64_t warp_row() {
  return static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
}

// A row of d floats spread over a warp, with PARTS groups of WIDTH per lane. PARTS and WIDTH are chosen so that d fits.
template <int PARTS, int WIDTH>
struct WarpRow {
  static constexpr int numbers = PARTS * WIDTH;  // per lane
  float v[PARTS][WIDTH];

  __device__ static int column(int part) {
    return (part * warp_size + static_cast<int>(threadIdx.x) % warp_size) * WIDTH;
  }
  __device__ void load(const float* source, int d) {
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) v[p][i] = 0.0f;
      if (column(p) < d) load_elements<WIDTH>(source + column(p), v[p]);
    }
  }
  template <typename T>
  __device__ void store(T* target, int d) const {
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      if (column(p) < d) store_elements<WIDTH>(target + column(p), v[p]);
    }
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) v[p][i] *= factor;
    }
  }
  __device__ void add(float factor, const WarpRow& other) {
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) v[p][i] = fmaf(factor, other.v[p][i], v[p][i]);
    }
  }
  __device__ float dot(const WarpRow& other) const {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) sum = fmaf(v[p][i], other.v[p][i], sum);
    }
    return warp_sum(sum);
  }
};

template <typename Row>
__global__ void __launch_bounds__(threads) query_forward_kernel(const float* raw, const float* previous, float ground,
                                                                float* query, float* norms, std::int64_t rows, int d) {
  wait_previous_kernel();
  const std::int64_t row = warp_row();
  if (row >= rows) return;
  Row q;
  q.load(raw + row * d, d);
  const float first = fmaxf(sqrtf(q.dot(q)), shortest);
  q.scale(1.0f / first);
  float second = 1.0f;
  if (previous != nullptr) {
    Row below;
    below.load(previous + row * d, d);
    q.add(ground, below);
    second = fmaxf(sqrtf(q.dot(q)), shortest);
    q.scale(1.0f / second);
  }
  q.store(query + row * d, d);
  if (threadIdx.x % warp_size == 0) {
    norms[2 * row] = first;
    norms[2 * row + 1] = second;
  }
}

// Computes the gradient through n = u/|u|: (g - n (n.g)) / |u|. Where |u| was raised to 1e-12, the length was a
// constant, and the gradient is g / |u|.
template <typename Row>
__device__ __forceinline__ void project(const Row& direction, float scale, float length, Row& g) {
  const float along = length > shortest ? direction.dot(g) * scale * scale : 0.0f;
  g.add(-along, direction);
  g.scale(1.0f / length);
}

// The tensors that query_backward reads and writes.
template <typename T>
struct QueryGradient {
  const float *raw, *query, *norms;
  float ground;
  T* draw;
  float* dprevious;
};

// Propagates g, the gradient of one row of the queries, to draw and dprevious.
template <typename Row, typename T>
__device__ __forceinline__ void query_backward_row(const QueryGradient<T>& in, std::int64_t row, int d, Row& g) {
  Row direction;
  const float first = in.norms[2 * row], second = in.norms[2 * row + 1];
  if (in.ground > 0.0f) {
    direction.load(in.query + row * d, d);
    project(direction, 1.0f, second, g);
    if (in.dprevious != nullptr) {
      Row below;
      below.load(in.dprevious + row * d, d);
      below.add(in.ground, g);
      below.store(in.dprevious + row * d, d);
    }
  }
  direction.load(in.raw + row * d, d);
  project(direction, 1.0f / first, first, g);
  g.store(in.draw + row * d, d);
}

template <typename Row, typename T>
__global__ void __launch_bounds__(threads)
    query_backward_kernel(const float* dquery, QueryGradient<T> in, std::int64_t rows, int d) {
  wait_previous_kernel();
  const std::int64_t row = warp_row();
  if (row >= rows) return;
  Row g;
  g.load(dquery + row * d, d);
  query_backward_row(in, row, d, g);
}

// Computes gates = softmax(scores / temperature) for one row, for any k; run by one warp.
__device__ __forceinline__ void row_softmax(const float* scores, float* gates, int k, float inverse) {
  const int lane = threadIdx.x % warp_size;
  float highest = -INFINITY, sum = 0.0f;
  for (int i = lane; i < k; i += warp_size) highest = fmaxf(highest, scores[i] * inverse);
  highest = warp_max(highest);
  for (int i = lane; i < k; i += warp_size) sum += expf(scores[i] * inverse - highest);
  sum = warp_sum(sum);
  for (int i = lane; i < k; i += warp_size) gates[i] = expf(scores[i] * inverse - highest) / sum;
}

template <int ITEMS>
__global__ void __launch_bounds__(threads)
    choose_kernel(const float* all_scores, const float* bias, const float* temperature, std::int64_t rows, int experts,
                  int k, std::int32_t* indices, float* scores, float* gates) {
  const std::int64_t row = warp_row();
  if (row >= rows) return;
  choose_row<ITEMS>(all_scores + row * experts, bias, experts, k, 1.0f / temperature[0], indices + row * k,
                    scores + row * k, gates + row * k);
}

// Chooses for any number of experts and any k: each round takes the best of the experts ranked after the last one
// chosen.
__global__ void __launch_bounds__(threads)
    choose_any_kernel(const float* all_scores, const float* bias, const float* temperature, std::int64_t rows,
                      int experts, int k, std::int32_t* indices, float* scores, float* gates) {
  const std::int64_t row = warp_row();
  if (row >= rows) return;
  const int lane = threadIdx.x % warp_size;
  const float* line = all_scores + row * experts;
  unsigned last_rank = 0xFFFFFFFFu, last_expert = 0u;
  bool none_yet = true;
  for (int round = 0; round < k; ++round) {
    unsigned best = 0u, where = 0xFFFFFFFFu;
    for (int expert = lane; expert < experts; expert += warp_size) {
      const unsigned rank = rank_of(line, bias, expert);
      const bool behind =
          none_yet || rank < last_rank || (rank == last_rank && static_cast<unsigned>(expert) > last_expert);
      if (behind && rank > best) {
        best = rank;
        where = static_cast<unsigned>(expert);
      }
    }
    last_rank = __reduce_max_sync(full_warp, best);
    last_expert = __reduce_min_sync(full_warp, best == last_rank ? where : 0xFFFFFFFFu);
    none_yet = false;
    if (lane == 0) {
      indices[row * k + round] = static_cast<std::int32_t>(last_expert);
      scores[row * k + round] = line[last_expert];
    }
  }
  __syncwarp();
  row_softmax(scores + row * k, gates + row * k, k, 1.0f / temperature[0]);
}

// Computes all_scores [rows, experts] = query keys^T, one warp per expert and four rows. A score does not depend on the
// number of rows, as that of a GEMM may.
constexpr int scored_together = 4;
template <int WIDTH>  // columns per load; d is a multiple of it
__global__ void __launch_bounds__(threads)
    row_scores_kernel(const float* query, const float* keys, std::int64_t rows, int experts, int d, float* all_scores) {
  wait_previous_kernel();
  const int expert = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * scored_together;
  if (expert >= experts) return;
  const float* const key = keys + static_cast<std::int64_t>(expert) * d;
  float sums[scored_together] = {};
#pragma unroll 4
  for (int column = static_cast<int>(threadIdx.x) % warp_size * WIDTH; column < d; column += warp_size * WIDTH) {
    float of_key[WIDTH];
    load_elements<WIDTH>(key + column, of_key);
#pragma unroll
    for (int i = 0; i < scored_together; ++i) {
      if (first + i >= rows) break;
      float own[WIDTH];
      load_elements<WIDTH>(query + (first + i) * d + column, own);
#pragma unroll
      for (int c = 0; c < WIDTH; ++c) sums[i] = fmaf(own[c], of_key[c], sums[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < scored_together; ++i) {
    const float sum = warp_sum(sums[i]);
    if (threadIdx.x % warp_size == 0 && first + i < rows) all_scores[(first + i) * experts + expert] = sum;
  }
}

template <typename Row>
__global__ void __launch_bounds__(threads)
    score_given_kernel(const float* query, const float* keys, const float* temperature, std::int64_t rows, int d, int k,
                       const std::int32_t* indices, float* scores, float* gates) {
  const std::int64_t row = warp_row();
  if (row >= rows) return;
  Row q, key;
  q.load(query + row * d, d);
  for (int i = 0; i < k; ++i) {
    key.load(keys + static_cast<std::int64_t>(indices[row * k + i]) * d, d);
    const float score = q.dot(key);
    if (threadIdx.x % warp_size == 0) scores[row * k + i] = score;
  }
  __syncwarp();
  row_softmax(scores + row * k, gates + row * k, k, 1.0f / temperature[0]);
}

__global__ void __launch_bounds__(threads)
    random_choice_kernel(const std::int32_t* tokens, std::int64_t count, int experts, std::uint64_t seed, int layer,
                         int k, std::int32_t* indices) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (t < count) hash_route_token(seed, layer, tokens[t], experts, k, indices + t * k);
}

// Backward pass of gates = softmax(s/tau): ds_i = gate_i (dgate_i - sum_j gate_j dgate_j) / tau, and the gradient of
// log tau is -sum_i ds_i s_i. partials: [blocks], its sums over a block's rows; or null. finish(row, gradient) receives
// each row's gradient and stores it or propagates it further.
template <typename Row, typename Epilogue>
__device__ __forceinline__ void route_backward_rows(const float* dgates, const float* gates, const float* scores,
                                                    const std::int32_t* indices, const float* keys,
                                                    const float* temperature, std::int64_t rows, int d, int k,
                                                    float* partials, Epilogue&& finish) {
  __shared__ float slopes[warps];
  const std::int64_t row = warp_row();
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  float slope = 0.0f;
  if (row < rows) {
    const float inverse = 1.0f / temperature[0];
    float mean = 0.0f;
    for (std::int64_t i = row * k + lane; i < (row + 1) * k; i += warp_size) mean += gates[i] * dgates[i];
    mean = warp_sum(mean);
    constexpr int together = Row::numbers <= 4 ? 4 : 1;  // keys whose loads are in flight at a time
    Row sum, key[together];
    sum.load(keys, 0);  // zeros
    for (std::int64_t i = row * k; i < (row + 1) * k; i += together) {
      float dscore[together];
#pragma unroll
      for (int j = 0; j < together; ++j) {
        const std::int64_t slot = min(i + j, (row + 1) * k - 1);
        dscore[j] = i + j < (row + 1) * k ? gates[slot] * (dgates[slot] - mean) * inverse : 0.0f;
        key[j].load(keys + static_cast<std::int64_t>(indices[slot]) * d, d);
        slope += dscore[j] * scores[slot];
      }
#pragma unroll
      for (int j = 0; j < together; ++j) sum.add(dscore[j], key[j]);
    }
    finish(row, sum);
  }
  if (partials == nullptr) return;
  if (lane == 0) slopes[warp] = slope;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < warps; ++w) total -= slopes[w];
  partials[blockIdx.x] = total;
}

template <typename Row>
__global__ void __launch_bounds__(threads)
    route_backward_kernel(const float* dgates, const float* gates, const float* scores, const std::int32_t* indices,
                          const float* keys, const float* temperature, std::int64_t rows, int d, int k, float* dquery,
                          float* partials) {
  wait_previous_kernel();
  route_backward_rows<Row>(dgates, gates, scores, indices, keys, temperature, rows, d, k, partials,
                           [&](std::int64_t row, const Row& sum) { sum.store(dquery + row * d, d); });
}

template <typename Row, typename T>
__global__ void __launch_bounds__(threads)
    route_query_backward_kernel(const float* dgates, const float* gates, const float* scores,
                                const std::int32_t* indices, const float* keys, const float* temperature,
                                std::int64_t rows, int d, int k, QueryGradient<T> in, float* partials) {
  wait_previous_kernel();
  route_backward_rows<Row>(dgates, gates, scores, indices, keys, temperature, rows, d, k, partials,
                           [&](std::int64_t row, Row& sum) { query_backward_row(in, row, d, sum); });
}

// Calls function(WarpRow<...>{}) with a row wide enough for d.
template <typename Function>
void with_row(int d, bool aligned, Function&& function) {
  if (aligned && d % 4 == 0) {
    if (d <= 128) return function(WarpRow<1, 4>{});
    if (d <= 256) return function(WarpRow<2, 4>{});
    if (d <= 512) return function(WarpRow<4, 4>{});
    if (d <= 1024) return function(WarpRow<8, 4>{});
    if (d <= 2048) return function(WarpRow<16, 4>{});
    if (d <= 4096) return function(WarpRow<32, 4>{});
  } else {
    if (d <= 128) return function(WarpRow<4, 1>{});
    if (d <= 1024) return function(WarpRow<32, 1>{});
  }
  failed(Code::size_unsupported,
         "queries on the GPU may have at most 4096 dimensions (1024 if not a multiple of 4; got {})", d);
}

}  // namespace

void query_forward(Context& ctx, const Tensor& raw, const Tensor* previous, double ground, Tensor& query,
                   Tensor& norms) {
  const std::int64_t rows = raw.dim(0);
  const int d = static_cast<int>(raw.dim(1));
  if (rows == 0) return;
  const float* below = previous != nullptr && ground > 0.0 ? floats(*previous) : nullptr;
  with_row(d, all_aligned16(raw.raw(), below, query.raw()), [&](auto row) {
    launch_dependent(ctx, query_forward_kernel<decltype(row)>, grid_for(rows, warps), threads, 0, floats(raw), below,
                     static_cast<float>(ground), floats(query), floats(norms), rows, d);
  });
}

void query_backward(Context& ctx, const Tensor& dquery, const Tensor& raw, const Tensor& query, const Tensor& norms,
                    double ground, Tensor& draw, Tensor* dprevious) {
  const std::int64_t rows = raw.dim(0);
  const int d = static_cast<int>(raw.dim(1));
  if (rows == 0) return;
  float* below = dprevious != nullptr ? floats(*dprevious) : nullptr;
  with_real_type(draw.dtype(), "the gradient of a query", [&](auto tag) {
    auto* target = elements_of<decltype(tag)>(draw);
    with_row(d, all_aligned16(dquery.raw(), raw.raw(), query.raw(), draw.raw(), below), [&](auto row) {
      const QueryGradient<decltype(tag)> in{floats(raw), floats(query), floats(norms), static_cast<float>(ground),
                                            target,      below};
      launch_dependent(ctx, query_backward_kernel<decltype(row), decltype(tag)>, grid_for(rows, warps), threads, 0,
                       floats(dquery), in, rows, d);
    });
  });
}

void route_forward(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias, const Tensor& temperature,
                   bool choice_given, Routing& routing) {
  const std::int64_t rows = query.dim(0), experts = keys.dim(0);
  const int d = static_cast<int>(query.dim(1)), k = static_cast<int>(routing.indices.dim(1)),
            count = static_cast<int>(experts);
  if (k > experts) failed(Code::index_out_of_range, "cannot choose {} of {} experts", k, experts);
  if (rows == 0) return;
  std::int32_t* indices = ints(routing.indices);
  float *scores = floats(routing.scores), *gates = floats(routing.gates);
  const int blocks = grid_for(rows, warps);
  if (choice_given) {
    with_row(d, all_aligned16(query.raw(), keys.raw()), [&](auto row) {
      score_given_kernel<decltype(row)><<<blocks, threads, 0, ctx.cuda->stream>>>(
          floats(query), floats(keys), floats(temperature), rows, d, k, indices, scores, gates);
      SOME_CUDA_LAUNCHED();
    });
    return;
  }
  const ArenaScope scope(*ctx.arena);
  if (supports_tensor_core_routing(ctx, query, keys, k)) {
    route_on_tensor_cores(ctx, query, keys, bias, temperature, routing);
    return;
  }
  const Tensor all = ctx.scratch({rows, experts}, DType::f32);
  if (row_products(ctx) != nullptr)
    launch_dependent(ctx, d % 4 == 0 ? row_scores_kernel<4> : row_scores_kernel<1>,
                     dim3(grid_for(experts, warps), grid_for(rows, scored_together)), threads, 0, floats(query),
                     floats(keys), rows, count, d, floats(all));
  else
    matmul(ctx, rows, experts, d, {query.raw(), DType::f32, false}, {keys.raw(), DType::f32, true}, all.raw(),
           DType::f32, false);
  const auto launch = [&](auto kernel) {
    kernel<<<blocks, threads, 0, ctx.cuda->stream>>>(floats(all), bias != nullptr ? floats(*bias) : nullptr,
                                                     floats(temperature), rows, count, k, indices, scores, gates);
    SOME_CUDA_LAUNCHED();
  };
  if (k > warp_size || experts > 32 * warp_size)
    launch(choose_any_kernel);
  else if (experts <= 2 * warp_size)
    launch(choose_kernel<2>);
  else if (experts <= 4 * warp_size)
    launch(choose_kernel<4>);
  else if (experts <= 8 * warp_size)
    launch(choose_kernel<8>);
  else if (experts <= 16 * warp_size)
    launch(choose_kernel<16>);
  else
    launch(choose_kernel<32>);
}

void query_route_forward(Context& ctx, const QueryRoute& route) {
  const int k = static_cast<int>(route.routing.indices.dim(1));
  const void* const previous = route.previous != nullptr ? route.previous->raw() : nullptr;
  if (!route.choice_given && route.partitions.searches_all() && k <= route.keys.dim(0) &&
      supports_tensor_core_routing(ctx, route.raw, route.keys, k) && all_aligned16(route.query.raw(), previous))
    return query_route_on_tensor_cores(ctx, route);
  Tensor query = route.query, norms = route.norms, temperature = route.temperature;
  if (route.log_temperature != nullptr) cuda::exponential(ctx, *route.log_temperature, temperature);
  cuda::query_forward(ctx, route.raw, route.previous, route.ground, query, norms);
  if (route.choice_given || route.partitions.searches_all())
    cuda::route_forward(ctx, query, route.keys, route.bias, temperature, route.choice_given, route.routing);
  else
    cuda::route_partitions_forward(ctx, query, route.keys, route.bias, temperature, route.partitions, route.routing);
}

void router_route_forward(Context& ctx, const RouterOutputLayer& router, const QueryRoute& route) {
  const int k = static_cast<int>(route.routing.indices.dim(1));
  const void* const previous = route.previous != nullptr ? route.previous->raw() : nullptr;
  const bool together = !route.choice_given && route.partitions.searches_all() && k <= route.keys.dim(0) &&
                        supports_tensor_core_routing(ctx, route.raw, route.keys, k) &&
                        can_fuse_router_layer(ctx, router, route.raw, route.keys) &&
                        all_aligned16(route.query.raw(), previous);
  if (together) return query_route_on_tensor_cores(ctx, route, &router);
  Tensor raw = route.raw;
  cuda::linear_forward(ctx, router.y, router.weight, router.bias, raw);
  cuda::query_route_forward(ctx, route);
}

void hash_routing(Context& ctx, const Tensor& tokens, int experts, std::uint64_t seed, int layer, Tensor& indices) {
  const std::int64_t count = tokens.elements();
  const int k = static_cast<int>(indices.dim(1));
  if (k > experts) failed(Code::index_out_of_range, "cannot choose {} of {} experts", k, experts);
  if (count == 0) return;
  random_choice_kernel<<<grid_for(count, threads), threads, 0, ctx.cuda->stream>>>(ints(tokens), count, experts, seed,
                                                                                   layer, k, ints(indices));
  SOME_CUDA_LAUNCHED();
}

void route_backward(Context& ctx, const Tensor& dgates, const Routing& routing, const Tensor& keys,
                    const Tensor& temperature, Tensor& dquery, Tensor* dlog_temperature) {
  const std::int64_t rows = dgates.dim(0);
  const int k = static_cast<int>(dgates.dim(1)), d = static_cast<int>(keys.dim(1));
  if (rows == 0) return;
  const ArenaScope scope(*ctx.arena);
  const unsigned blocks = grid_for(rows, warps);
  float* partials = dlog_temperature != nullptr ? partial_sums_buffer(ctx, blocks) : nullptr;
  with_row(d, all_aligned16(keys.raw(), dquery.raw()), [&](auto row) {
    launch_dependent(ctx, route_backward_kernel<decltype(row)>, blocks, threads, 0, floats(dgates),
                     floats(routing.gates), floats(routing.scores), ints(routing.indices), floats(keys),
                     floats(temperature), rows, d, k, floats(dquery), partials);
  });
  if (dlog_temperature != nullptr) add_partials(ctx, partials, static_cast<int>(blocks), 1, floats(*dlog_temperature));
}

void route_query_backward(Context& ctx, const RouteQueryBackward& in) {
  const std::int64_t rows = in.dgates.dim(0);
  const int k = static_cast<int>(in.dgates.dim(1)), d = static_cast<int>(in.keys.dim(1));
  if (rows == 0) return;
  const ArenaScope scope(*ctx.arena);
  const unsigned blocks = grid_for(rows, warps);
  float* partials = in.dlog_temperature != nullptr ? partial_sums_buffer(ctx, blocks) : nullptr;
  float* below = in.dprevious != nullptr ? floats(*in.dprevious) : nullptr;
  with_real_type(in.draw.dtype(), "the gradient of a query", [&](auto tag) {
    using T = decltype(tag);
    const QueryGradient<T> query{floats(in.raw),          floats(in.query),
                                 floats(in.norms),        static_cast<float>(in.ground),
                                 elements_of<T>(in.draw), below};
    with_row(d, all_aligned16(in.keys.raw(), in.raw.raw(), in.query.raw(), in.draw.raw(), below), [&](auto row) {
      launch_dependent(ctx, route_query_backward_kernel<decltype(row), T>, blocks, threads, 0, floats(in.dgates),
                       floats(in.routing.gates), floats(in.routing.scores), ints(in.routing.indices), floats(in.keys),
                       floats(in.temperature), rows, d, k, query, partials);
    });
  });
  if (in.dlog_temperature != nullptr)
    add_partials(ctx, partials, static_cast<int>(blocks), 1, floats(*in.dlog_temperature));
}

}  // namespace some::cuda
