// The key update of spec 4 on the GPU: three small kernels, a fourth for rebirth, and nothing read back: whether any
// position took part is asked on the device. Rows are kept in double precision from the first movement to the
// constraint, as on the CPU. Every kernel takes several layers, for one alone does not fill the GPU.
#include <algorithm>

#include "keys/key_store.h"
#include "keys/rules.h"
#include "ops/cuda_toolkit.cuh"

namespace some::keys::cuda {
namespace {

constexpr int threads = 256;

// What the kernels need to know, by value.
struct Update {
  const long long* positions;
  const std::int32_t* slot_counts;
  const std::int32_t* together;
  const float *gate_sums, *query_sums, *sample_queries;
  float *keys, *usage, *mass, *average;
  long long* counts;
  double* moved;    // [E, d] after 4.3
  double* pulled;   // [E, d] after 4.4; the same memory where there is no pull
  double* theta;    // [1]
  double* lengths;  // [E], of the finished keys
  int experts, d, top_k;
  Usage usage_kind;
  double ema_decay, alpha, alpha_floor, beta, clip_delta, delta, theta_percentile, fixed_theta, key_ema,
      respawn_threshold;
  bool use_alpha, decays;
  BetaInertia inertia;
  Constraint constraint;
  bool constraint_last;
  RandomStream noise;

  __device__ bool nothing() const { return positions[0] == 0; }
};

constexpr int most_layers = 12;  // in one launch: what describes them travels with it, 4 KB at most
struct Updates {
  Update layer[most_layers];
};
static_assert(sizeof(Updates) <= 4000);

__device__ long long chosen_of(const Update& update, int expert) {
  long long chosen = 0;
#pragma unroll 4
  for (int i = 0; i < update.top_k; ++i) chosen += update.slot_counts[expert * update.top_k + i];
  return chosen;
}

// On every sum of the step: E / (all choices) for flux (rules.h), otherwise 1. The sum is one of whole numbers below
// 2^53, exact in any order.
__device__ double flux_factor(const Update& update, double* shared) {
  if (update.usage_kind != Usage::flux) return 1.0;
  double total = 0.0;
  for (int i = threadIdx.x; i < update.experts * update.top_k; i += blockDim.x) total += update.slot_counts[i];
  return update.experts / block_sum(total, shared);
}

// spec 4.2 and 4.3: block (e, y) moves key e of layer y.
__global__ void __launch_bounds__(threads) attract_kernel(const __grid_constant__ Updates updates) {
  __shared__ double shared[warp_size];
  const Update& update = updates.layer[blockIdx.y];
  const int expert = blockIdx.x;
  if (update.nothing()) {
    if (expert == 0 && threadIdx.x < 2) update.counts[2 + threadIdx.x] = 0;
    return;
  }
  const double factor = flux_factor(update, shared);
  // Every thread computes the usage: waiting for one that does would take longer.
  const bool cumulative = update.usage_kind == Usage::cumulative;
  const double keep = cumulative ? 1.0 : update.ema_decay, take = cumulative ? 1.0 : 1.0 - update.ema_decay;
  const float used = static_cast<float>(keep * update.usage[expert] +
                                        take * (factor * static_cast<double>(chosen_of(update, expert))));
  const double a = fmax(update.alpha / (1.0 + used), update.alpha_floor);
  __syncthreads();  // all have read the old usage
  if (threadIdx.x == 0) {
    update.usage[expert] = used;
    update.mass[expert] = static_cast<float>(keep * update.mass[expert] + take * (factor * update.gate_sums[expert]));
    if (expert == 0) {
      update.counts[2] = 0;
      update.counts[3] = update.positions[0];
    }
  }
  for (int j = threadIdx.x; j < update.d; j += threads) {
    const std::int64_t place = static_cast<std::int64_t>(expert) * update.d + j;
    double value = update.keys[place];
    if (update.use_alpha) {
      constexpr int ahead = 4;  // slots whose loads are under way together
      for (int first = 0; first < update.top_k; first += ahead) {
        std::int32_t n[ahead];
        float sum[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
          const bool exists = first + i < update.top_k;
          n[i] = exists ? update.slot_counts[expert * update.top_k + first + i] : 0;
          sum[i] =
              exists ? update.query_sums[(static_cast<std::int64_t>(expert) * update.top_k + first + i) * update.d + j]
                     : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
          if (n[i] != 0) value += a * (factor * sum[i] - factor * n[i] * value);
        }
      }
    }
    update.moved[place] = value;
  }
}

// The quantile of the usages above 0 (spec 4.7): an expert's place among them is how many stand before it.
__device__ void find_theta(const Update& update, double* shared) {
  __shared__ double at[2];
  int used = 0;
  for (int base = 0; base < update.experts; base += blockDim.x) {
    const int e = base + static_cast<int>(threadIdx.x);
    used += __syncthreads_count(e < update.experts && update.usage[e] > 0.0f);
  }
  if (used == 0) {
    if (threadIdx.x == 0) update.theta[0] = 0.0;  // no usage lies below it
    return;
  }
  const double place = fmin(fmax(update.theta_percentile, 0.0), 1.0) * (used - 1);
  const int low = static_cast<int>(place), high = min(low + 1, used - 1);
  for (int e = threadIdx.x; e < update.experts; e += blockDim.x) {
    const float mine = update.usage[e];
    if (!(mine > 0.0f)) continue;
    int before = 0;
    for (int f = 0; f < update.experts; ++f) {
      const float other = update.usage[f];
      before += other > 0.0f && (other < mine || (other == mine && f < e)) ? 1 : 0;
    }
    if (before == low) at[0] = mine;
    if (before == high) at[1] = mine;
  }
  __syncthreads();
  if (threadIdx.x == 0) update.theta[0] = at[0] + (place - low) * (at[1] - at[0]);
}

constexpr int pull_experts = 8;  // a block moves these together: each peer's row is read once for all of them
constexpr int pull_columns = 128;

// spec 4.4, from the snapshot `moved`. Block (x, y, z): experts 8x .. 8x+7, columns 128y .. 128y+127, layer z. The last
// block in x finds theta, which needs only the usages.
__global__ void __launch_bounds__(pull_columns) pull_kernel(const __grid_constant__ Updates updates) {
  __shared__ double weights[pull_columns][pull_experts];
  __shared__ double shared[warp_size];
  const Update& update = updates.layer[blockIdx.z];
  if (update.nothing()) return;
  if (blockIdx.x == gridDim.x - 1) {
    if (blockIdx.y == 0 && update.decays && update.fixed_theta < 0.0) find_theta(update, shared);
    return;
  }
  if (update.pulled == update.moved) return;
  const double factor = flux_factor(update, shared);
  const int first = static_cast<int>(blockIdx.x) * pull_experts,
            column = static_cast<int>(blockIdx.y) * pull_columns + static_cast<int>(threadIdx.x);
  // sum_f w (K[f] - K[e]) = sum_f w K[f] - (sum_f w) K[e]: one operation a pair and column instead of three.
  double row[pull_experts], sum[pull_experts], total[pull_experts];
#pragma unroll
  for (int i = 0; i < pull_experts; ++i) {
    const bool exists = first + i < update.experts && column < update.d;
    row[i] = exists ? update.moved[static_cast<std::int64_t>(first + i) * update.d + column] : 0.0;
    sum[i] = total[i] = 0.0;
  }
  for (int base = 0; base < update.experts; base += pull_columns) {
    __syncthreads();
    const int peer = base + static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < pull_experts; ++i) {
      double weight = 0.0;
      const int expert = first + i;
      if (peer < update.experts && expert < update.experts && peer != expert) {
        const std::int32_t count = update.together[static_cast<std::int64_t>(expert) * update.experts + peer];
        if (count != 0) {
          const double mine = 1.0 + update.usage[expert], theirs = 1.0 + update.usage[peer];
          weight = factor * count * update.beta /
                   (update.inertia == BetaInertia::min ? fmin(mine, theirs) : fmax(mine, theirs));
        }
      }
      weights[threadIdx.x][i] = weight;
      total[i] += weight;
    }
    __syncthreads();
    if (column >= update.d) continue;
    const int peers = min(pull_columns, update.experts - base);
    constexpr int ahead = 16;  // peers whose loads are under way together
    for (int first_peer = 0; first_peer < peers; first_peer += ahead) {
      double other[ahead];
#pragma unroll
      for (int p = 0; p < ahead; ++p)
        other[p] = first_peer + p < peers
                       ? update.moved[static_cast<std::int64_t>(base + first_peer + p) * update.d + column]
                       : 0.0;
#pragma unroll
      for (int p = 0; p < ahead; ++p) {
        if (first_peer + p >= peers) break;
#pragma unroll
        for (int i = 0; i < pull_experts; ++i) sum[i] = fma(weights[first_peer + p][i], other[p], sum[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < pull_experts; ++i) {
    total[i] = block_sum(total[i], shared);  // a thread had every 128th peer
    if (column < update.d && first + i < update.experts)
      update.pulled[static_cast<std::int64_t>(first + i) * update.d + column] = row[i] + (sum[i] - total[i] * row[i]);
  }
}

__device__ double length_of(const double* row, int d, double* shared) {
  double square = 0.0;
  for (int j = threadIdx.x; j < d; j += blockDim.x) square += row[j] * row[j];
  return sqrt(block_sum(square, shared));
}

// A thread only ever touches its own columns of `row`, so no barrier is needed between the steps.
__device__ void constrain(const Update& update, long long chosen, double* row, double* shared) {  // spec 4.6
  if (update.constraint == Constraint::free || (update.constraint == Constraint::normalize_used && chosen == 0)) return;
  const double length = length_of(row, update.d, shared);
  if (update.constraint == Constraint::clamp && length <= 1.0) return;
  const double scale = 1.0 / fmax(length, kSmallestLength);
  for (int j = threadIdx.x; j < update.d; j += blockDim.x) row[j] *= scale;
}

// spec 4.5 to 4.8: block (e, y) finishes key e of layer y.
__global__ void __launch_bounds__(threads) finish_kernel(const __grid_constant__ Updates updates) {
  extern __shared__ double row[];
  __shared__ double shared[warp_size];
  const Update& update = updates.layer[blockIdx.y];
  if (update.nothing()) return;
  const int expert = blockIdx.x;
  float* key = update.keys + static_cast<std::int64_t>(expert) * update.d;  // still as before 4.3
  const double* source = update.pulled + static_cast<std::int64_t>(expert) * update.d;
  for (int j = threadIdx.x; j < update.d; j += threads) row[j] = source[j];
  if (update.clip_delta > 0.0) {
    double square = 0.0;
    for (int j = threadIdx.x; j < update.d; j += threads) square += (row[j] - key[j]) * (row[j] - key[j]);
    const double distance = sqrt(block_sum(square, shared));
    if (distance > update.clip_delta) {
      for (int j = threadIdx.x; j < update.d; j += threads)
        row[j] = key[j] + (row[j] - key[j]) * (update.clip_delta / distance);
    }
  }
  const long long chosen = chosen_of(update, expert);
  if (!update.constraint_last) constrain(update, chosen, row, shared);
  if (update.decays && update.usage[expert] < (update.fixed_theta >= 0.0 ? update.fixed_theta : update.theta[0])) {
    for (int j = threadIdx.x; j < update.d; j += threads) row[j] *= 1.0 - update.delta;
  }
  if (update.constraint_last) constrain(update, chosen, row, shared);
  for (int j = threadIdx.x; j < update.d; j += threads) {
    key[j] = static_cast<float>(row[j]);
    if (update.key_ema > 0.0) {
      float& mean = update.average[static_cast<std::int64_t>(expert) * update.d + j];
      mean = static_cast<float>(update.key_ema * mean + (1.0 - update.key_ema) * row[j]);
    }
  }
  if (update.respawn_threshold > 0.0) {
    const double length = length_of(row, update.d, shared);
    if (threadIdx.x == 0) update.lengths[expert] = length;
  }
}

// spec 4.9: the dead keys, by rising expert number, take the sampled queries, by rising priority.
__global__ void __launch_bounds__(threads) rebirth_kernel(const __grid_constant__ Updates updates) {
  extern __shared__ double row[];
  __shared__ double shared[warp_size];
  const Update& update = updates.layer[blockIdx.y];
  if (update.nothing()) return;
  const int expert = blockIdx.x;
  int deaths = 0, before = 0;
  for (int base = 0; base < update.experts; base += threads) {
    const int e = base + static_cast<int>(threadIdx.x);
    const bool dead = e < update.experts && update.lengths[e] < update.respawn_threshold;
    deaths += __syncthreads_count(dead);
    before += __syncthreads_count(dead && e < expert);
  }
  const bool enough = deaths <= update.positions[0];
  if (expert == 0 && threadIdx.x == 0) {
    update.counts[1] += deaths;
    update.counts[2] = deaths;
    if (enough) update.counts[0] += deaths;
  }
  if (!enough || !(update.lengths[expert] < update.respawn_threshold)) return;
  for (int j = threadIdx.x; j < update.d; j += threads)
    row[j] = update.sample_queries[static_cast<std::int64_t>(before) * update.d + j] +
             rebirth_noise(update.noise, expert, update.d, j);
  const double scale = 1.0 / fmax(length_of(row, update.d, shared), kSmallestLength);
  for (int j = threadIdx.x; j < update.d; j += threads) {
    const std::int64_t place = static_cast<std::int64_t>(expert) * update.d + j;
    update.keys[place] = static_cast<float>(row[j] * scale);
    if (update.key_ema > 0.0) update.average[place] = static_cast<float>(row[j] * scale);
  }
  if (threadIdx.x == 0) {
    update.usage[expert] = 0.0f;
    update.mass[expert] = 0.0f;
  }
}

Update describe(Context& ctx, const LayerUpdate& layer, const KeySettings& settings) {
  KeyState& state = *layer.state;
  const KeySums& sums = *layer.sums;
  const std::int64_t experts = state.keys.dim(0), d = state.keys.dim(1);
  const bool pulls = settings.use_beta && layer.options.beta != 0.0;
  Update update{};
  update.positions = longs(sums.positions);
  update.slot_counts = ints(sums.slot_counts);
  update.together = ints(sums.together);
  update.gate_sums = floats(sums.gate_sums);
  update.query_sums = floats(sums.query_sums);
  update.sample_queries = sums.sample_queries ? floats(sums.sample_queries) : nullptr;
  update.keys = floats(state.keys);
  update.usage = floats(state.usage);
  update.mass = floats(state.mass);
  update.average = state.average ? floats(state.average) : nullptr;
  update.counts = longs(state.counts);
  update.moved = ctx.scratch({experts, d}, DType::f64).data<double>();
  update.pulled = pulls ? ctx.scratch({experts, d}, DType::f64).data<double>() : update.moved;
  update.theta = ctx.scratch({1}, DType::f64).data<double>();
  update.lengths = ctx.scratch({experts}, DType::f64).data<double>();
  update.experts = static_cast<int>(experts);
  update.d = static_cast<int>(d);
  update.top_k = static_cast<int>(sums.slot_counts.dim(1));
  update.usage_kind = settings.usage;
  update.ema_decay = settings.ema_decay;
  update.alpha = settings.alpha;
  update.alpha_floor = settings.alpha_floor;
  update.beta = layer.options.beta;
  update.clip_delta = settings.clip_delta;
  update.delta = settings.delta;
  update.theta_percentile = settings.theta_percentile;
  update.fixed_theta = settings.theta;
  update.key_ema = settings.key_ema;
  update.respawn_threshold = settings.respawn_threshold;
  update.use_alpha = settings.use_alpha;
  update.decays = settings.use_delta && state.steps > settings.decay_warmup;
  update.inertia = settings.beta_inertia;
  update.constraint = settings.constraint;
  update.constraint_last = settings.constraint_order == ConstraintOrder::last;
  update.noise = layer.options.stream;
  return update;
}

}  // namespace

void update_keys(Context& ctx, std::span<const LayerUpdate> layers, const KeySettings& settings) {
  if (layers.empty()) return;
  const std::int64_t experts = layers[0].state->keys.dim(0), d = layers[0].state->keys.dim(1);
  if (d > 6000) failed("the GPU's keys have at most 6000 numbers, not {}", d);
  for (const LayerUpdate& layer : layers) {
    if (layer.state->keys.shape() != layers[0].state->keys.shape())
      failed("keys {} and {} cannot be updated together", layers[0].state->keys.shape().text(),
             layer.state->keys.shape().text());
    if (settings.key_ema > 0.0 && !layer.state->average)
      failed("key_ema is {}, but this key store was made without a running mean", settings.key_ema);
    if (settings.respawn_threshold > 0.0 && !layer.sums->sample_priority) {
      failed("respawn_threshold is {}, but these key sums were made without a sample of queries",
             settings.respawn_threshold);
    }
    ++layer.state->steps;  // spec 4.1
  }
  const std::size_t row_bytes = static_cast<std::size_t>(d) * sizeof(double);
  for (std::size_t begin = 0; begin < layers.size(); begin += most_layers) {
    const ArenaScope scope(*ctx.arena);
    const unsigned number = static_cast<unsigned>(std::min<std::size_t>(most_layers, layers.size() - begin));
    Updates updates{};
    bool pulls_or_finds_theta = false;
    for (unsigned i = 0; i < number; ++i) {
      const Update& update = updates.layer[i] = describe(ctx, layers[begin + i], settings);
      if (update.pulled != update.moved || (update.decays && settings.theta < 0.0)) pulls_or_finds_theta = true;
    }
    const dim3 blocks(static_cast<unsigned>(experts), number);
    attract_kernel<<<blocks, threads, 0, ctx.cuda->stream>>>(updates);
    SOME_CUDA_LAUNCHED();
    if (pulls_or_finds_theta) {
      pull_kernel<<<dim3(grid_for(experts, pull_experts) + 1, grid_for(d, pull_columns), number), pull_columns, 0,
                    ctx.cuda->stream>>>(updates);
      SOME_CUDA_LAUNCHED();
    }
    finish_kernel<<<blocks, threads, row_bytes, ctx.cuda->stream>>>(updates);
    SOME_CUDA_LAUNCHED();
    if (settings.respawn_threshold > 0.0) {
      rebirth_kernel<<<blocks, threads, row_bytes, ctx.cuda->stream>>>(updates);
      SOME_CUDA_LAUNCHED();
    }
  }
}

}  // namespace some::keys::cuda
