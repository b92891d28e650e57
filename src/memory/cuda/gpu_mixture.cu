// Mixes a memory into the logits of a step of generation. Probabilities of tokens are sums of integers over the slots
// that hold them, so they do not depend on the order of additions.
//
// Bytes per row: the scores of all slots three times, the logits and the memory's probabilities twice; the keys once
// per 16 or 128 rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "memory/cuda/search.cuh"
#include "memory/gpu_mixture.h"
#include "memory/partitions.h"
#include "runtime/staging.h"

namespace some {
namespace cuda {
namespace {

constexpr int summed_slots = 1024;              // per block of sums_kernel
constexpr double fraction = 281474976710656.0;  // 2^48: probabilities are multiples of its inverse
constexpr int entries_each = 8, mix_threads = 512;

// Weights of one row: a slot has weight mass * sum over s of factor[s] * exp(beta[s] * (score - level)).
struct RowWeights {
  float level, factor[max_betas_of_kernel];
};

__device__ __forceinline__ float weight_of(const RowWeights& row, const Betas& beta, float score, float mass) {
  float sum = 0.0f;
#pragma unroll
  for (int s = 0; s < max_betas_of_kernel; ++s) {
    if (s >= beta.count) break;
    sum = fmaf(row.factor[s], exp2f((score - row.level) * beta.binary(s)), sum);
  }
  return mass * sum;
}
__device__ __forceinline__ unsigned long long fixed(float weight, float part) {
  return static_cast<unsigned long long>(static_cast<double>(weight) * static_cast<double>(part) * fraction);
}

// Contributions of the contexts to the prediction of a row, and the weights of the slots next to them.
struct ContextParts {
  float uniform, follower_weight;
  std::int32_t follower, orders;
  float memory_weights[max_betas_of_kernel];
  std::int32_t nodes[max_orders];
  float weights[max_orders];
};

// Clears the memory's probabilities, and finds the texts of the rows; -1: not mixed.
__global__ void __launch_bounds__(threads)
    begin_kernel(const std::int32_t* slots, const std::int32_t* row_of, const std::int32_t* used, std::int64_t cells,
                 int vocabulary, std::int32_t* texts, unsigned long long* token_probs) {
  wait_previous_kernel();
  const std::int64_t cell = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (cell >= cells) return;
  token_probs[cell] = 0;
  if (cell % vocabulary != 0) return;
  const std::int64_t row = cell / vocabulary;
  const std::int32_t slot = slots[row_of != nullptr ? row_of[row] : row];
  texts[row] = slot >= 0 && used[slot] != 0 ? slot : -1;
}

// Sums the weights of a row over some slots: [rows, blocks] records of a level and one sum per inverse temperature.
__global__ void __launch_bounds__(threads) sums_kernel(const float* scores, const float* mass, std::int64_t reach,
                                                       Betas beta, const std::int32_t* texts, RowWeights* records) {
  wait_previous_kernel();
  __shared__ float partial[warp_size];
  const std::int64_t row = blockIdx.y, first = static_cast<std::int64_t>(blockIdx.x) * summed_slots;
  if (texts[row] < 0) return;
  constexpr int each = summed_slots / threads;
  float score[each], own[each], highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const std::int64_t m = first + i * threads + threadIdx.x;
    own[i] = m < reach ? mass[m] : 0.0f;
    score[i] = m < reach ? scores[row * reach + m] : 0.0f;
    if (own[i] > 0.0f) highest = fmaxf(highest, score[i]);
  }
  highest = block_highest(highest, partial);
  RowWeights& record = records[row * gridDim.x + blockIdx.x];
  for (int s = 0; s < beta.count; ++s) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < each; ++i)
      if (own[i] > 0.0f) sum = fmaf(own[i], exp2f((score[i] - highest) * beta.binary(s)), sum);
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) record.factor[s] = sum;
  }
  if (threadIdx.x == 0) record.level = highest;
}

// Computes the factors of the weights, one block per row.
__global__ void __launch_bounds__(warp_size)
    factors_kernel(const RowWeights* records, int blocks, const std::int32_t* texts, const float* memory_weights,
                   const ContextParts* contexts, Betas beta, RowWeights* rows) {
  wait_previous_kernel();
  const std::int64_t row = blockIdx.x;
  const std::int32_t text = texts[row];
  if (text < 0) return;
  const RowWeights* own = records + row * blocks;
  const int lane = threadIdx.x;
  float highest = -INFINITY;
  for (int b = lane; b < blocks; b += warp_size) highest = fmaxf(highest, own[b].level);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) highest = fmaxf(highest, __shfl_xor_sync(full_warp, highest, offset));
  for (int s = 0; s < beta.count; ++s) {
    float sum = 0.0f;
    for (int b = lane; b < blocks; b += warp_size)
      if (own[b].level > -INFINITY) sum = fmaf(own[b].factor[s], exp2f((own[b].level - highest) * beta.binary(s)), sum);
    sum = warp_sum(sum);
    const float own_weight =
        contexts != nullptr ? contexts[row].memory_weights[s] : memory_weights[text * beta.count + s];
    if (lane == 0) rows[row].factor[s] = sum > 0.0f ? own_weight / sum : 0.0f;
  }
  if (lane == 0) rows[row].level = highest > -INFINITY ? highest : 0.0f;
}

// An entry of a slot: a token and its part of the slot. Entries are sorted by token.
struct Entry {
  std::int32_t token, slot, entry;
  float part;
};

__global__ void __launch_bounds__(threads)
    entries_kernel(const Entry* entries, std::int64_t count, const float* scores, const float* mass, std::int64_t reach,
                   Betas beta, const std::int32_t* texts, const RowWeights* rows, int vocabulary,
                   unsigned long long* token_probs) {
  wait_previous_kernel();
  const std::int64_t row = blockIdx.y,
                     first = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * entries_each;
  if (texts[row] < 0 || first >= count) return;
  const RowWeights own = rows[row];
  std::int32_t token = -1;
  unsigned long long sum = 0;
  for (int i = 0; i < entries_each && first + i < count; ++i) {
    const Entry entry = entries[first + i];
    if (entry.token != token) {
      if (sum != 0) atomicAdd(token_probs + row * vocabulary + token, sum);
      token = entry.token;
      sum = 0;
    }
    sum += fixed(weight_of(own, beta, scores[row * reach + entry.slot], mass[entry.slot]), entry.part);
  }
  if (sum != 0) atomicAdd(token_probs + row * vocabulary + token, sum);
}

// Adds the probabilities of one context, one block per row and order.
__global__ void __launch_bounds__(threads)
    contexts_kernel(const ContextParts* contexts, const std::int32_t* first, const std::int32_t* tokens,
                    const float* shares, const std::int32_t* texts, int vocabulary, unsigned long long* token_probs) {
  wait_previous_kernel();
  const std::int64_t row = blockIdx.y;
  const int order = blockIdx.x;
  if (texts[row] < 0) return;
  const ContextParts& own = contexts[row];
  unsigned long long* const to = token_probs + row * vocabulary;
  if (order == 0 && threadIdx.x == 0 && own.follower_weight > 0.0f)
    atomicAdd(to + own.follower, fixed(own.follower_weight, 1.0f));
  if (order >= own.orders) return;
  const float weight = own.weights[order];
  for (std::int32_t i = first[own.nodes[order]] + static_cast<std::int32_t>(threadIdx.x);
       i < first[own.nodes[order] + 1]; i += threads)
    atomicAdd(to + tokens[i], fixed(weight, shares[i]));
}

__device__ __forceinline__ unsigned long long block_total(unsigned long long value, unsigned long long* shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(full_warp, value, offset);
  __syncthreads();
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = value;
  __syncthreads();
  value = 0;
#pragma unroll
  for (int w = 0; w < mix_threads / warp_size; ++w) value += shared[w];
  return value;
}

// Replaces logits by log probabilities of the mixture, one block per row.
__global__ void __launch_bounds__(mix_threads)
    mix_logits_kernel(const std::int32_t* texts, const unsigned long long* token_probs, const ContextParts* contexts,
                      int vocabulary, float* logits) {
  wait_previous_kernel();
  __shared__ unsigned long long totals[mix_threads / warp_size];
  const std::int64_t row = blockIdx.x;
  if (texts[row] < 0) return;
  float* const own = logits + row * vocabulary;
  const unsigned long long* const probs = token_probs + row * vocabulary;
  float highest = -INFINITY;
  unsigned long long memory_total = 0;
  for (int v = threadIdx.x; v < vocabulary; v += mix_threads) {
    highest = fmaxf(highest, own[v]);
    memory_total += probs[v];
  }
  memory_total = block_total(memory_total, totals);
  // Merges the maxima of the warps.
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) highest = fmaxf(highest, __shfl_xor_sync(full_warp, highest, offset));
  __shared__ float levels[mix_threads / warp_size];
  if (threadIdx.x % warp_size == 0) levels[threadIdx.x / warp_size] = highest;
  __syncthreads();
  for (int w = 0; w < mix_threads / warp_size; ++w) highest = fmaxf(highest, levels[w]);
  constexpr double unit = 4294967296.0;
  unsigned long long sum = 0;
  for (int v = threadIdx.x; v < vocabulary; v += mix_threads)
    sum += static_cast<unsigned long long>(static_cast<double>(__expf(own[v] - highest)) * unit);
  sum = block_total(sum, totals);
  const double uniform = contexts != nullptr ? static_cast<double>(contexts[row].uniform) : 0.0;
  const double of_model =
      fmax(0.0, 1.0 - uniform - static_cast<double>(memory_total) / fraction) / (static_cast<double>(sum) / unit);
  const double of_each = uniform / vocabulary;
  for (int v = threadIdx.x; v < vocabulary; v += mix_threads) {
    const float logit = own[v];
    if (!isfinite(logit)) continue;  // the row is reported as not finite
    const double both =
        of_model * static_cast<double>(__expf(logit - highest)) + static_cast<double>(probs[v]) / fraction + of_each;
    own[v] = static_cast<float>(log(fmax(both, 1e-300)));
  }
}

// Finds the slots that contributed most to the token of a row, one block per row.
__global__ void __launch_bounds__(threads)
    sources_kernel(GpuMixture::SourceRows in, const Entry* entries, const std::int32_t* first_of, const float* scores,
                   const float* mass, std::int64_t reach, Betas beta, const std::int32_t* texts, const RowWeights* rows,
                   int vocabulary) {
  wait_previous_kernel();
  __shared__ unsigned long long best_of[warps], total;
  const std::int64_t wanted = blockIdx.x, row = in.of_rows && in.row_of != nullptr ? in.row_of[wanted] : wanted;
  if (texts[row] < 0) return;
  GpuMixture::Sources& out = in.sources[(in.rings[wanted] + in.ring_size - 1) % in.ring_size * in.ring_rows + wanted];
  const std::int32_t token = in.numbers[wanted] < 0 ? in.targets[wanted] : in.drawn[texts[row]];
  const RowWeights own = rows != nullptr ? rows[row] : RowWeights{};
  const std::int32_t begin = first_of[token], end = first_of[token + 1];
  const int most = min(in.wanted[wanted], GpuMixture::max_sources);
  unsigned long long last = ~0ull;
  int count = 0;
  for (; count < most && count < end - begin; ++count) {
    unsigned long long best = 0;
    std::int32_t best_at = -1;
    for (std::int32_t i = begin + static_cast<std::int32_t>(threadIdx.x); i < end; i += threads) {
      const Entry entry = entries[i];
      const float weight = weight_of(own, beta, scores[row * reach + entry.slot], mass[entry.slot]) * entry.part;
      const unsigned long long place = static_cast<unsigned long long>(__float_as_uint(weight)) << 32 |
                                       (0xFFFFFFFFu - static_cast<unsigned>(entry.slot));
      if (place < last && place > best) {
        best = place;
        best_at = i;
      }
    }
    unsigned long long all = best;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      const unsigned long long other = __shfl_xor_sync(full_warp, all, offset);
      all = other > all ? other : all;
    }
    __syncthreads();
    if (threadIdx.x % warp_size == 0) best_of[threadIdx.x / warp_size] = all;
    __syncthreads();
    for (int w = 0; w < warps; ++w) all = best_of[w] > all ? best_of[w] : all;
    if (all == 0) break;
    if (best == all) {  // one thread: a slot holds a token once
      out.slots[count] = entries[best_at].slot;
      out.entries[count] = entries[best_at].entry;
      out.weights[count] = __uint_as_float(static_cast<unsigned>(all >> 32));
    }
    last = all;
  }
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  unsigned long long own_total = 0;
  for (std::int32_t i = begin + static_cast<std::int32_t>(threadIdx.x); i < end; i += threads) {
    const Entry entry = entries[i];
    own_total += fixed(weight_of(own, beta, scores[row * reach + entry.slot], mass[entry.slot]), entry.part);
  }
  atomicAdd(&total, own_total);
  __syncthreads();
  if (threadIdx.x != 0) return;
  out.count = count;
  out.of_slots = static_cast<float>(static_cast<double>(total) / fraction);
  out.probability = static_cast<float>(exp(static_cast<double>(in.logits[row * vocabulary + token])));
}

}  // namespace
}  // namespace cuda

struct GpuMixture::State {
  Context& ctx;
  const Memory& memory;
  int vocabulary;
  std::int64_t reach, entries = 0;
  Tensor sorted, first_of, mass, memory_weights, used;
  cuda::Betas beta;
  // Only for memories with contexts.
  Tensor nodes, context_tokens, context_shares;
  std::vector<ContextMixture> mixtures;
  std::vector<std::int32_t> staged;
  // Results of the last step, in the arena.
  Tensor scores, texts, rows, token_probs, contexts;
  cuda::ContextParts* context_rows() const {
    return contexts ? static_cast<cuda::ContextParts*>(contexts.raw()) : nullptr;
  }
};

bool GpuMixture::supports(const Context& ctx, const Memory& memory) {
  return ctx.device.is_cuda() && ctx.master == DType::f32 && memory.store.keys.dim(1) % 32 == 0 &&
         (memory.store.reach > 0 || memory.settings.contexts > 0) &&
         !searches_some_partitions(memory.store, memory.settings);
}

GpuMixture::GpuMixture(Context& ctx, const Memory& memory, std::int64_t texts, int vocabulary)
    : state_(new State{ctx, memory, vocabulary, memory.store.reach}) {
  const Store& store = memory.store;
  const std::int64_t slots = store.slots(), reach = store.reach;
  const Tensor values = store.values.to(Device::cpu);
  const std::vector<double> of_entries = read_vector(store.entry_counts_or_totals()),
                            counts = read_vector(store.counts);
  std::vector<cuda::Entry> sorted;
  for (std::int64_t k = 0; k < store.entries(); ++k) {
    for (std::int64_t m = 0; m < reach; ++m) {
      const std::int32_t token = values.data<std::int32_t>()[k * slots + m];
      if (token < 0 || token >= vocabulary) continue;
      const auto at = static_cast<std::size_t>(k * slots + m), slot = static_cast<std::size_t>(m);
      sorted.push_back({token, static_cast<std::int32_t>(m), static_cast<std::int32_t>(k),
                        static_cast<float>(of_entries[at] / std::max(counts[slot], 1.0))});
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
  std::vector<std::int32_t> first_of(static_cast<std::size_t>(vocabulary) + 1);
  for (const cuda::Entry& one : sorted) ++first_of[static_cast<std::size_t>(one.token) + 1];
  for (std::size_t v = 1; v < first_of.size(); ++v) first_of[v] += first_of[v - 1];
  std::vector<float> mass;
  for (std::int64_t m = 0; m < reach; ++m) {
    const double count = counts[static_cast<std::size_t>(m)];
    mass.push_back(count > 0 ? static_cast<float>(std::pow(count, memory.settings.counts)) : 0.0f);
  }
  const auto put = [&](Tensor& target, const void* data, std::size_t bytes) {
    target = Tensor::empty({std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / 4))}, DType::i32, ctx.device);
    if (bytes > 0) device_copy(ctx.device, target.raw(), Device::cpu, data, bytes);
  };
  put(state_->sorted, sorted.data(), sorted.size() * sizeof(cuda::Entry));
  put(state_->first_of, first_of.data(), first_of.size() * sizeof(std::int32_t));
  put(state_->mass, mass.data(), mass.size() * sizeof(float));
  state_->entries = std::ssize(sorted);
  state_->beta = cuda::betas(memory.settings);
  state_->memory_weights = Tensor::zeros({texts, state_->beta.count}, DType::f32, ctx.device);
  state_->used = Tensor::zeros({texts}, DType::i32, ctx.device);
  if (!has_contexts()) return;
  const ContextStore::OwnShares own = memory.contexts.own_shares();
  put(state_->nodes, own.first.data(), own.first.size() * sizeof(std::int32_t));
  put(state_->context_tokens, own.tokens.data(), own.tokens.size() * sizeof(std::int32_t));
  put(state_->context_shares, own.shares.data(), own.shares.size() * sizeof(float));
  state_->mixtures.resize(static_cast<std::size_t>(texts));
}

GpuMixture::~GpuMixture() = default;

void GpuMixture::set_weights(std::int32_t text, std::span<const double> weights) {
  const std::int32_t used = weights.empty() ? 0 : 1;
  device_copy(state_->ctx.device, state_->used.rows(text, text + 1).raw(), Device::cpu, &used, sizeof used);
  if (weights.empty()) return;
  std::vector<float> own(weights.begin(), weights.end());
  own.resize(static_cast<std::size_t>(state_->beta.count));
  device_copy(state_->ctx.device, state_->memory_weights.rows(text, text + 1).raw(), Device::cpu, own.data(),
              own.size() * sizeof(float));
}

bool GpuMixture::has_contexts() const { return state_->memory.settings.contexts > 0; }

void GpuMixture::set_mixture(std::int32_t text, const ContextMixture& mixture) {
  const std::int32_t used = 1;
  device_copy(state_->ctx.device, state_->used.rows(text, text + 1).raw(), Device::cpu, &used, sizeof used);
  state_->mixtures[static_cast<std::size_t>(text)] = mixture;
}

void GpuMixture::find_contexts(std::int64_t rows, std::span<const ContextRow> wanted) {
  State& own = *state_;
  constexpr std::size_t words = sizeof(cuda::ContextParts) / sizeof(std::int32_t);
  own.staged.assign(static_cast<std::size_t>(rows) * words, 0);
  const ContextStore& contexts = own.memory.contexts;
  const auto beta_count = static_cast<std::size_t>(own.beta.count),
             orders = static_cast<std::size_t>(contexts.settings().orders());
  parallel_for(*own.ctx.threads, std::ssize(wanted), [&](std::int64_t i) {
    const ContextRow& one = wanted[static_cast<std::size_t>(i)];
    const ContextMixture& mixture = own.mixtures[static_cast<std::size_t>(one.text)];
    const ContextMatch match = contexts.find(one.before);
    std::vector<double> sources(static_cast<std::size_t>(mixture.sources()));
    mixture.weights(mixture_context(match, one.before), sources);
    // The last source is the only follower of the longest context, or equals the highest order.
    double* const of_orders = sources.data() + sources.size() - orders - 1;
    const double follower = sources.back();
    if (!match.certain) of_orders[orders - 1] += follower;
    const ContextSpread spread = contexts.spread(match, {of_orders, orders});
    cuda::ContextParts parts{};
    parts.uniform = static_cast<float>(spread.uniform);
    parts.follower = std::max(match.follower, 0);
    parts.follower_weight = static_cast<float>(spread.follower + (match.certain ? follower : 0));
    parts.orders = match.depth + 1;
    for (std::size_t s = 0; s < beta_count && sources.size() > 2 + orders; ++s)
      parts.memory_weights[s] = static_cast<float>(sources[1 + s]);
    for (int k = 0; k < parts.orders; ++k) {
      parts.nodes[k] = match.nodes[static_cast<std::size_t>(k)];
      parts.weights[k] = static_cast<float>(spread.nodes[static_cast<std::size_t>(k)]);
    }
    std::memcpy(own.staged.data() + static_cast<std::size_t>(one.row) * words, &parts, sizeof parts);
  });
  own.contexts = own.ctx.staging->upload(own.ctx, {&own.staged})[0];
}

void GpuMixture::mix(const Rows& in) {
  State& own = *state_;
  Context& ctx = own.ctx;
  using namespace cuda;  // NOLINT(google-build-using-namespace)
  const auto rows = static_cast<unsigned>(in.rows);
  const std::int64_t cells = in.rows * own.vocabulary;
  own.texts = ctx.scratch({in.rows}, DType::i32);
  own.token_probs = ctx.scratch({cells}, DType::i64);
  auto* const token_probs = reinterpret_cast<unsigned long long*>(own.token_probs.data<std::int64_t>());
  launch_dependent(ctx, begin_kernel, grid_for(cells, threads), threads, 0, in.slots, in.row_of, ints(own.used), cells,
                   own.vocabulary, ints(own.texts), token_probs);
  if (own.entries > 0) add_slots(in);
  if (has_contexts())
    launch_dependent(ctx, contexts_kernel, dim3(static_cast<unsigned>(own.memory.contexts.settings().orders()), rows),
                     dim3(threads), 0, own.context_rows(), ints(own.nodes), ints(own.context_tokens),
                     static_cast<const float*>(own.context_shares.raw()), ints(own.texts), own.vocabulary, token_probs);
  launch_dependent(ctx, mix_logits_kernel, dim3(rows), dim3(mix_threads), 0, ints(own.texts), token_probs,
                   own.context_rows(), own.vocabulary, in.logits);
}

// Adds the probabilities of the slots' tokens.
void GpuMixture::add_slots(const Rows& in) {
  State& own = *state_;
  Context& ctx = own.ctx;
  using namespace cuda;  // NOLINT(google-build-using-namespace)
  const auto rows = static_cast<unsigned>(in.rows);
  own.scores = ctx.scratch({in.rows, own.reach}, DType::f32);
  own.rows = ctx.scratch({in.rows, static_cast<std::int64_t>(sizeof(RowWeights) / 4)}, DType::f32);
  const auto* const mass = static_cast<const float*>(own.mass.raw());
  auto* const weights = static_cast<RowWeights*>(own.rows.raw());
  Tensor queries = ctx.scratch({in.rows, in.states.dim(1)}, DType::f32);
  cuda::make_queries(ctx, in.states, own.memory.store.mean, queries);
  score(ctx, own.memory.store, floats(queries), in.rows, 0, own.reach, floats(own.scores));
  const unsigned blocks = grid_for(own.reach, summed_slots);
  const Tensor records = ctx.scratch({in.rows * blocks, static_cast<std::int64_t>(sizeof(RowWeights) / 4)}, DType::f32);
  launch_dependent(ctx, sums_kernel, dim3(blocks, rows), dim3(threads), 0, floats(own.scores), mass, own.reach,
                   own.beta, ints(own.texts), static_cast<RowWeights*>(records.raw()));
  launch_dependent(ctx, factors_kernel, dim3(rows), dim3(warp_size), 0, static_cast<const RowWeights*>(records.raw()),
                   static_cast<int>(blocks), ints(own.texts), floats(own.memory_weights), own.context_rows(), own.beta,
                   weights);
  launch_dependent(ctx, entries_kernel, dim3(grid_for(own.entries, threads * entries_each), rows), dim3(threads), 0,
                   static_cast<const Entry*>(own.sorted.raw()), own.entries, floats(own.scores), mass, own.reach,
                   own.beta, ints(own.texts), weights, own.vocabulary,
                   reinterpret_cast<unsigned long long*>(own.token_probs.data<std::int64_t>()));
}

void GpuMixture::report(const SourceRows& in) {
  State& own = *state_;
  using namespace cuda;  // NOLINT(google-build-using-namespace)
  launch_dependent(own.ctx, sources_kernel, dim3(static_cast<unsigned>(in.rows)), dim3(threads), 0, in,
                   static_cast<const Entry*>(own.sorted.raw()), ints(own.first_of),
                   own.entries > 0 ? floats(own.scores) : nullptr, static_cast<const float*>(own.mass.raw()), own.reach,
                   own.beta, ints(own.texts),
                   own.entries > 0 ? static_cast<const RowWeights*>(own.rows.raw()) : nullptr, own.vocabulary);
}

}  // namespace some
