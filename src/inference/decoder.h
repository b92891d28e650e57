// One step of generation: passes rows of tokens through the model with a key/value cache and samples tokens. The engine
// (inference/engine.h) chooses the rows; a decoder computes them. One implementation supports every device and model
// (model_decoder.cc: Model::decode, then sampling on the host). For supported models, make_decoder() returns a faster
// one that computes the same function.
//
// A slot holds one sequence: its part of the cache, its sampling options and the tokens sampled so far. A sequence
// occupies a slot when it starts and frees it when it ends; nothing in the cache is copied or moved.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "inference/sampling.h"
#include "memory/memory.h"
#include "memory/predictions.h"
#include "model/model.h"

namespace some {

struct DecoderOptions {
  std::int64_t slots = 1;
  std::int64_t capacity = 0;      // positions per slot; 0: model.seq_len
  double router_temperature = 0;  // 0: eval_temp
  bool half_weights = false;      // CPU: weights in bf16; the text may differ from that of fp32
  // Learns keys from the rows (spec 7): one update per adapt_window rows; 0: frozen keys. adapt_step: number of updates
  // so far.
  std::int64_t adapt_window = 0, adapt_step = 0;
  std::string adapt_rules;
};

// Settings of a sequence, passed when it occupies a slot.
struct SlotSequence {
  SamplingOptions sampling;
  std::vector<TokenId> prompt;  // for the repetition penalty; may be empty if there is none
  // A memory that is mixed into every prediction with these weights (mixture_weights()); null: none.
  const Memory* memory = nullptr;
  std::vector<double> mixture;
  ContextMixture contexts;  // replaces the weights for a memory with contexts (context_mixture_after())
};

constexpr TokenId last_drawn = -1;

// A row with an output.
struct WantedRow {
  std::int32_t row = 0;  // its index in the batch
  // Draw: a token is sampled with random number `number` of the sequence, and counted for the penalties. Score: no
  // token is sampled; the result is the log probability of `target`. State: the result is the last hidden state.
  enum class Kind : std::uint8_t { draw, score, state } kind = Kind::draw;
  std::int64_t number = 0;  // draw: the number of the token among the new ones
  TokenId target = 0;       // score
  int logprobs = -1;        // draw: -1 = none, 0 = of the chosen token, n = also the n most likely; score: n >= 0
  int sources = 0;          // for draw and score with a memory: maximum number of slots to report per token
};

// One step. All vectors have one element per row, except `wanted`.
struct DecodeBatch {
  // last_drawn: use the token sampled last for this slot, which need not be collected yet.
  std::vector<TokenId> tokens;
  // Rows of one slot are consecutive positions in increasing order. Positions of earlier steps may be overwritten,
  // which invalidates the positions after them.
  std::vector<std::int32_t> slots, positions;
  // 1: the row was read before, at another position, and only refills the cache: keys do not learn from it. Such a row
  // has no output, and its routing is not reported.
  std::vector<std::uint8_t> again;
  std::vector<WantedRow> wanted;  // rows in increasing order; at most one draw per slot
  bool routes = false;            // report the experts of every row

  std::size_t rows() const { return tokens.size(); }
  void add(TokenId token, std::int32_t slot, std::int32_t position, bool reread = false);
};

struct DecodedRow {
  TokenId token = 0;   // draw: the token; score: the target
  bool finite = true;  // false: the logits are not finite, and no token was sampled
  double logprob = 0;  // if logprobs >= 0; includes the memory, before penalties and temperature
  std::vector<TokenLogprob> top;
  MemoryShares memory;       // sources
  std::vector<float> state;  // state
};

struct DecodeResult {
  std::vector<DecodedRow> wanted;  // in the order of DecodeBatch::wanted
  // With DecodeBatch::routes: [rows, layers, top_k], best first; empty without experts.
  std::vector<std::int32_t> experts;
  std::vector<float> gates;
  int top_k = 0;
};

class Decoder {
 public:
  virtual ~Decoder() = default;

  // Assigns a slot to a sequence, with an empty cache.
  virtual void open(std::int32_t slot, const SlotSequence& sequence) = 0;
  virtual void close(std::int32_t slot) = 0;
  // Discards copies of the store of a memory that has changed. No step may be in flight.
  virtual void memory_changed(const Memory& memory) = 0;

  // Starts a step. Steps take effect in the order of submission; at most max_in_flight() may be uncollected.
  virtual void submit(const DecodeBatch& batch) = 0;
  virtual DecodeResult collect() = 0;  // waits for the oldest step
  virtual int max_in_flight() const { return 1; }
  virtual std::int64_t prompt_rows() const { return 256; }  // recommended number of prompt rows per step

  virtual std::int64_t slots() const = 0;
  virtual std::int64_t capacity() const = 0;
  virtual std::size_t cache_bytes() const = 0;
};

// Throws bad_input for options that the model does not support. The model must outlive the decoder, and nothing else
// may use it while a step is in flight.
std::unique_ptr<Decoder> make_decoder(Model& model, const DecoderOptions& options);
// Returns the implementation for every device and model. Another decoder may use the same cache and alternate with it;
// it forwards open(), close() and the tokens that it samples. Batches then contain no last_drawn.
class ModelDecoder : public Decoder {
 public:
  virtual void drawn(std::int32_t slot, TokenId token) = 0;
  virtual void saw(std::int32_t slot, std::int32_t position, TokenId token) = 0;  // a row that the other has read
  virtual const TokenCounts& counts(std::int32_t slot) const = 0;  // empty if the sequence has no penalty
};
std::unique_ptr<ModelDecoder> make_model_decoder(Model& model, const DecoderOptions& options);
std::unique_ptr<ModelDecoder> make_model_decoder(Model& model, const DecoderOptions& options, Model::Cache cache);
// Returns the bytes of the cache per slot.
double cache_bytes_per_slot(Model& model, std::int64_t capacity);

}  // namespace some
