// The kernels of a decoding step on a Hopper GPU: their arguments, and functions that launch them. Each kernel waits
// for the previous one itself (programmatic dependent launch), so they must be launched in one stream in the order of
// their dependencies. All of them can be captured in a CUDA graph.
//
// Each number is computed in one fixed order, independent of the kernel that computes it and of the other rows in the
// batch:
// - a matrix product is a sum of partial sums over `part` consecutive columns (`hidden_part` for the second
//   feed-forward matrix), added in order; within a partial sum, the tensor cores add 16 terms at a time;
// - a norm is computed by one warp, lane after lane;
// - attention is computed for blocks of 32 positions, which are merged in order.
// A row's logits therefore do not depend on which kernels ran.
#pragma once

#include <cstdint>

#include "runtime/context.h"
#include "tensor/device.h"

namespace some::decoding {

struct bf16 {
  std::uint16_t bits;
};

constexpr int threads = 256, warps = threads / 32;
constexpr int cluster_size = 8;  // blocks that share rows of 16 tokens
constexpr int tile_rows = 16;    // rows of a tile of the tensor cores
constexpr int part = 64, hidden_part = 128;
constexpr int head_size = 64;
constexpr int position_block = 32;
constexpr int largest_width = 512;  // of a model
constexpr int few_rows = 32;        // maximum rows for cluster kernels (few_rows.cuh)

// ---- Few rows (few_rows.cuh): one row per slot.

// The rows that enter a layer: either embeddings (if table is set), or the norm of residual + the sum of partial
// products + bias.
struct RowInput {
  const std::int32_t *tokens, *slots, *positions;  // [rows]; slots < 0: padding
  int rows, width, cluster_rows;                   // cluster_rows: rows per cluster, at most tile_rows
  const float *table, *places;                     // [vocab, width]; [positions, width] or null
  float table_scale;
  const float* partial;  // [parts, rows, width]
  int parts;
  const float* bias;     // [width] or null
  const bf16* residual;  // [rows, width]
  const float *norm_weight, *norm_bias;
  bf16* x;  // [rows, width]: the result
  // The input states of a feed-forward block, kept if the block reads earlier ones; null: not kept.
  bf16* states;  // [slots * capacity, width]
  // Causal convolution of what the kernel multiplies (not of x); 0: none.
  int taps;
  const float* taps_weight;  // [taps, width]
  std::int64_t capacity;
};

// A layer's attention: 8 blocks per head and 16 rows compute the head and its part of the output projection.
struct AttentionStep {
  RowInput in;
  const bf16* qkv_weight;  // [3 width, width]
  const float* qkv_bias;
  const bf16* out_weight;  // [width, width]
  bf16* cache;             // [slots, capacity, 2 width]: keys, then values
  int heads;
  float* partial;  // [heads, rows, width]
};

// A layer's feed-forward block: 8 blocks per 128 hidden units and 16 rows.
struct FeedForwardStep {
  RowInput in;
  const bf16* weight1;  // [hidden, width]
  const float* bias1;
  const bf16* weight2;  // [width, hidden]
  int hidden;           // a multiple of 8
  float* partial;       // [(hidden + 127) / 128, rows, width]
};

// Routing by a linear router (spec 3.1 - 3.4). Queries have `query_size` columns.
constexpr int query_size = 64, max_experts = 32, max_choices = 4, max_shift = 3;
struct Routes {
  const bf16* weight;            // [query_size, width]
  const float* bias;             // [query_size]
  const float* keys;             // [experts, query_size]
  const float* choice_bias;      // [experts], or null
  const float* log_temperature;  // of the gates; null: they have inverse_temperature
  float inverse_temperature;
  int experts, choices;
};

// Experts and gates of rows for the host: [ring, row, layer, choice], in pinned memory. Null: not reported.
struct RouteReport {
  std::int32_t* experts;
  float* gates;
  const std::int32_t* rings;  // per row: place of its next result
  std::int64_t rows;          // of a ring
  int layer, layers, choices;
  int first_row = 0;  // row 0 of the kernel is this row of the step
};

// Experts that modulate the hidden layer (spec 3.9): the arguments of every kernel that computes a part of it.
struct Modulations {
  const bf16* w1;      // [experts, hidden, width]
  const float* gains;  // [experts, hidden]
  float scale;
  bool additive;
  int shift;  // token shift; 0: none
  // Experts that are Hadamard transforms: [experts, blocks of 512 hidden units, 512 bits]; null: stored matrices.
  const std::uint32_t* signs;
  int blocks;
};

// A layer's modulated feed-forward block: 8 blocks per 128 hidden units and 16 rows.
struct ModulatedStep {
  FeedForwardStep block;  // receives states if there is a token shift or a convolution; both together are not supported
  Routes routes;
  Modulations modulations;
  RouteReport report;
  bool prefetches;  // requests the weights of all experts before the routing is known
};

struct HeadStep {
  RowInput in;
  const bf16* weight;  // [vocab, width]
  const float* bias;
  int vocab;
  float* logits;  // [rows, vocab]
};

// ---- Many rows (many_rows.cuh): any rows; those of one slot in the order of their positions.

enum class ProductResult : std::uint8_t {
  qkv,       // queries to y; keys and values to the cache
  gelu,      // y = GELU(product)
  residual,  // y = residual + product
  plain,     // y = product
  logits,    // floats
};

struct Product {
  const bf16* a;         // [rows, k]
  const bf16* weight;    // [columns, k]
  const float* bias;     // [columns] or null
  int rows, columns, k;  // columns: even; k: a multiple of 8
  int sum_parts;         // slabs of `part` columns per partial sum
  ProductResult result;
  bf16* y;               // [rows, columns]; qkv: [rows, k]
  const bf16* residual;  // [rows, columns]
  float* logits;         // [rows, columns]
  bf16* cache;           // [slots, capacity, 2 k]
  std::int64_t capacity;
  const std::int32_t *slots, *positions;
};

// Two products of the same rows in one kernel.
struct ProductPair {
  Product first, second;
};

// The routing of rows: their experts, and for every expert the list of its rows, in any order.
struct RowRoutes {
  Routes routes;
  const float* raw;  // [rows, query_size]
  int rows, list_stride;
  std::int32_t* indices;  // [rows, choices]
  float* gates;           // [rows, choices]
  std::int32_t* counts;   // [experts], initially 0; null: no lists
  std::int32_t* lists;    // [experts, list_stride]: row * choices + choice
  RouteReport report;
};

// Activations of the experts, for the rows that chose them: y[row * choices + choice] = w1[expert] state.
struct ExpertProduct {
  Product product;  // of one expert; a: the rows' states, with weight, y and k; rows: number of rows in the step
  int experts, choices, list_stride, shift;
  const std::int32_t *counts, *lists;
  const bf16* states;  // token shift: [slots * capacity, k]
};

struct RowModulation {
  Modulations modulations;
  const bf16* hidden;       // [rows, columns]
  const bf16* activations;  // [rows * choices, columns]
  const std::int32_t* indices;
  const float* gates;
  int rows, columns, choices;
  bf16* y;  // [rows, columns]
};

// The same for experts that are Hadamard transforms, which it computes; activations is not read.
struct RowTransforms {
  RowModulation modulation;
  const bf16* x;       // [rows, width]
  const bf16* states;  // token shift: [slots * capacity, width]
  int width;
  std::int64_t capacity;
  const std::int32_t *slots, *positions;
};

struct RowAttention {
  const bf16* queries;  // [rows, width], query_stride apart
  std::int64_t query_stride;
  const bf16* cache;  // [slots, capacity, 2 width]
  std::int64_t capacity;
  const std::int32_t *slots, *positions;
  int rows, heads;
  bf16* mixed;  // [rows, width]
};

// Copies the keys and values of rows to the cache.
struct RowKeys {
  const bf16* qkv;  // [rows, 3 width]
  bf16* cache;
  std::int64_t capacity;
  const std::int32_t *slots, *positions;
  int rows, width;
};

struct RowEmbedding {
  const std::int32_t *tokens, *positions;
  const float *table, *places;
  float scale;
  int rows, width;
  bf16* x;
  std::int32_t* cleared;  // numbers to clear
  int clears;
};

struct RowNorm {
  const bf16* sums;            // [rows, width]
  const std::int32_t* row_of;  // row i is row row_of[i] of the sums; null: row i
  const float *weight, *bias;
  int rows, width;
  bf16* x;  // [rows, width]
  // If not null, receives the norms as well, [slots * capacity, width].
  bf16* states;
  std::int64_t capacity;
  const std::int32_t *slots, *positions;
};

// Keeps the states of rows, and adds the convolution over the states before them.
struct RowConvolution {
  const bf16* x;  // [rows, width]
  bf16* states;   // [slots * capacity, width]
  const float* taps_weight;
  int taps, rows, width;
  std::int64_t capacity;
  const std::int32_t *slots, *positions;
  bf16* y;  // [rows, width]
};

// ---- Sampling (sample.cuh).

constexpr int max_logprobs = 32;

// Sampling state per slot.
struct SlotSampling {
  std::uint64_t key;          // id of its random stream
  float inverse_temperature;  // inverse temperature, times log2(e)
  float top_p, min_p, repetition, presence, frequency;
  std::int32_t greedy, top_k, penalizes, biases;
};
struct LogitBias {
  std::int32_t token;
  float bias;
};
// Result of a row with an output, for the host.
struct alignas(16) SampleResult {
  std::int32_t token, finite;
  float logit, largest, sum;  // of the row before sampling: the log probability is logit - largest - log(sum)
  std::int32_t tops, unused[2];
  std::int32_t top_tokens[max_logprobs];
  float top_logits[max_logprobs];
};

struct SampleStep {
  const float* logits;  // [wanted, vocab], or [rows, vocab]
  bool logits_of_rows;
  int vocab, wanted;
  const std::int32_t* row_of;                // [wanted]: its row; null: equal to the index
  std::int32_t *tokens, *slots, *positions;  // per row
  std::int32_t* numbers;                     // per output row: number of the token to sample; -1: score `targets`
  const std::int32_t *targets, *logprobs;    // per output row; logprobs: -1: none
  std::int32_t* rings;                       // per output row: place of its next result
  int ring_size, ring_stride;
  const SlotSampling* sampling;  // [slots]
  const LogitBias* biases;       // [slots, max_biases]
  int max_biases;
  std::uint32_t* counts;     // [slots, vocab]: 2 * occurrences + 1 if in the prompt; null: no sequence uses penalties
  std::int32_t* last_drawn;  // [slots]
  bool advance;              // the next step has the same rows, one position later
  SampleResult* results;     // [ring_size, ring_stride], in memory of the host
};
constexpr int largest_vocab = 32768;

// Computes Model::DecodeRows from the numbers of a step. Padding rows take position 0 of the slot `spare`.
struct RowPlaces {
  const std::int32_t *slots, *positions;  // [rows]
  int rows, past;
  std::int32_t spare;
  std::int64_t capacity;
  std::int32_t *own_slots, *own_positions, *places;  // [rows]
  std::int32_t* before;                              // [rows, past + 1]
};

// Reports the experts of a layer.
struct RowReport {
  const std::int32_t* indices;  // [rows, choices]
  const float* gates;
  int rows;
  RouteReport report;
};

// Writes the states of output rows for the host.
struct StateReport {
  const bf16* states;
  const std::int32_t* row_of;  // [wanted]: the row of the states; null: the same
  const std::int32_t* rings;   // per wanted row
  int wanted, width;
  std::int64_t rows;  // of a ring
  float* result;      // [ring, row, width]
};

// Replaces tokens below 0 by the last token sampled for their slot.
struct TokenStep {
  std::int32_t* tokens;
  const std::int32_t *slots, *last_drawn;
  int rows;
};

void launch(CudaState& state, const AttentionStep& step);
void launch(CudaState& state, const FeedForwardStep& step);
void launch(CudaState& state, const ModulatedStep& step);
void launch(CudaState& state, const HeadStep& step);
void launch(CudaState& state, const Product& step);
void launch(CudaState& state, const ProductPair& step);
void launch(CudaState& state, const RowRoutes& step);
void launch(CudaState& state, const ExpertProduct& step);
void launch(CudaState& state, const RowTransforms& step);
void launch(CudaState& state, const RowModulation& step);
void launch(CudaState& state, const RowAttention& step);
void launch(CudaState& state, const RowKeys& step);
void launch(CudaState& state, const RowEmbedding& step);
void launch(CudaState& state, const RowNorm& step);
void launch(CudaState& state, const RowConvolution& step);
void launch(CudaState& state, const SampleStep& step);
void launch(CudaState& state, const TokenStep& step);
void launch(CudaState& state, const RowPlaces& step);
void launch(CudaState& state, const RowReport& step);
void launch(CudaState& state, const StateReport& step);
// RowProducts::on_gpu and attention_on_gpu.
bool multiply_rows(Context& ctx, const Tensor& x, const Tensor& weights, const Tensor* bias, bool gelu, Tensor& y);
bool attend_rows(Context& ctx, const Tensor& qkv, const Tensor& slots, const Tensor& positions, int heads,
                 Tensor& cache, Tensor& out);
// Returns the bytes of shared memory of attention for few rows, at most max_shared.
int attention_shared_bytes(std::int64_t capacity);

}  // namespace some::decoding
