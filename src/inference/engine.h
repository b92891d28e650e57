// Generates with continuous batching over the slots of a decoder (inference/decoder.h). Sequences start when a slot is
// free and free it when they end; each step reads a chunk of the unread prompts and generates one token for every other
// sequence. A sequence's tokens do not depend on the rest of the batch.
//
// One thread calls step() and receives all callbacks. Any thread may call add(), cancel(), statistics() and wait() at
// any time; within a callback only add() and cancel() are allowed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "inference/decoder.h"
#include "inference/sampling.h"
#include "inference/text_stream.h"
#include "memory/memory.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace some {

struct EngineOptions {
  std::int64_t max_sequences = 16;   // maximum number of concurrent sequences; reduced to what cache_bytes allows
  std::int64_t max_waiting = 65536;  // maximum number of waiting sequences; beyond it, add() throws server_busy
  // Prompt rows per step, over all sequences; 0: whole prompts; -1: Decoder::prompt_rows().
  std::int64_t prompt_chunk = -1;
  double cache_bytes = 0;  // maximum memory for keys and values; 0: the machine's memory, on the CPU
  // Settings shared by all sequences: DecoderOptions without slots and capacity.
  DecoderOptions decoder;
  std::function<std::unique_ptr<Decoder>(Model&, const DecoderOptions&)> make_decoder = some::make_decoder;
};

enum class FinishReason : std::uint8_t {
  eos,        // end-of-text token
  stop,       // a stop string or stop token
  length,     // max_tokens
  context,    // the context is full, and sliding is off
  cancelled,  // cancel()
  failed,     // FinishedSequence::error
};
const char* name_of(FinishReason reason);

using SequenceId = std::uint64_t;

// The experts of one token when it was read, [layers, top_k], best first.
struct TokenRoutes {
  std::int64_t index = 0;  // index of the token in prompt and new tokens
  TokenId token = 0;
  int top_k = 0;
  std::vector<std::int32_t> experts;
  std::vector<float> gates;
};

struct TokenEvent {
  SequenceId id = 0;
  TokenId token = 0;
  std::int64_t number = 0;  // among the new tokens
  // The text completed by this token: whole UTF-8 characters, without a possible beginning of a stop string. All
  // pieces, followed by FinishedSequence::rest, are the text.
  std::string text;
  double logprob = 0;               // if SequenceRequest::logprobs >= 0
  std::vector<TokenLogprob> top;    // the most likely tokens at this position
  MemoryShares memory;              // if SequenceRequest::sources > 0
  std::vector<TokenRoutes> routes;  // of the tokens read since the last event: first the prompt's, then one per event
};

struct PromptToken {
  double logprob = 0;  // of this token given those before it; 0 for the first token
  std::vector<TokenLogprob> top;
  MemoryShares memory;
};

struct FinishedSequence {
  SequenceId id = 0;
  FinishReason reason = FinishReason::eos;
  std::vector<TokenId> tokens;  // the new tokens, without EOS
  std::string text;             // text of the new tokens, without the stop string
  std::string rest;             // the part of it not yet reported by a TokenEvent
  std::string stop;             // the stop string that was found
  std::int64_t prompt_tokens = 0;
  // Log probability of the end-of-text token, if the text ended with it and logprobs >= 0.
  std::optional<PromptToken> eos;
  std::vector<float> embedding;     // SequenceRequest::embed
  std::vector<TokenRoutes> routes;  // not yet reported
  std::exception_ptr error;
};

struct SequenceRequest {
  std::vector<TokenId> prompt;  // at least one token
  SamplingOptions sampling;
  std::int64_t max_tokens = 200;  // 0: the prompt is only read (prompt_logprobs, embed)
  bool stop_at_eos = true;        // false: EOS is never drawn
  std::vector<std::string> stop;  // the text ends before the first of these strings
  std::vector<TokenId> stop_tokens;
  // Continues beyond seq_len with a sliding context, in the same way as evaluation reads long documents: when the
  // context is full, its first half is dropped and the rest is read again. false: the text ends there.
  bool slide = true;
  int logprobs = -1;         // -1: none; 0: of each new token; n: also of the n most likely ones
  int prompt_logprobs = -1;  // the same for the tokens of the prompt, which is then read from its beginning
  bool routes = false;       // report the experts of each token
  bool embed = false;        // the mean of the last hidden states over the prompt; max_tokens must be 0
  // A memory that is mixed into every prediction. The prompt is read first and determines the mixture weights. The
  // memory must not change while the sequence is active.
  Memory* memory = nullptr;
  int sources = 0;  // with a memory: maximum number of slots to report per new token

  std::function<void(const TokenEvent&)> on_token;
  // Called once, after the whole prompt is read, if prompt_logprobs >= 0; [i] belongs to prompt[i].
  std::function<void(const std::vector<PromptToken>&)> on_prompt;
  std::function<void(const FinishedSequence&)> on_finish;  // the last call for this sequence
};
void check(const SequenceRequest& request);  // bad_input if an option is out of range

struct EngineStatistics {
  std::int64_t slots = 0, active = 0, waiting = 0;
  std::int64_t added = 0, refused = 0, finished = 0, cancelled = 0, failed = 0;
  std::int64_t steps = 0, prompt_tokens = 0, generated_tokens = 0, reread_tokens = 0;
  std::int64_t rows = 0;            // of the last step
  std::int64_t positions_used = 0;  // of the cache
  std::int64_t positions = 0;
  double cache_bytes = 0, busy_seconds = 0;
};

class Engine {
 public:
  // Nothing else may use the model during step().
  Engine(Model& model, const Tokenizer& tokenizer, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a sequence. Throws bad_input if the request is impossible, and Code::server_busy if max_waiting sequences
  // are waiting.
  SequenceId add(SequenceRequest request);
  void cancel(SequenceId id);  // it finishes at the next step; unknown and finished ids are ignored
  // Runs one iteration. Returns false if there was nothing to do. An error of one sequence ends only that sequence;
  // other errors are thrown, after which the engine must not be used.
  bool step();
  void run();  // steps until every sequence has finished
  bool idle() const;
  // Waits until there is work, at most this long.
  void wait(std::chrono::milliseconds longest) const;
  // Must be called after the store of a memory has changed; no active sequence may use it.
  void memory_changed(const Memory& memory);
  EngineStatistics statistics() const;
  Decoder& decoder() { return *decoder_; }

 private:
  struct Sequence;
  struct Flight;
  void admit();
  bool apply_cancels();
  bool plan(DecodeBatch& batch, Flight& flight);
  std::int64_t add_rows(const std::shared_ptr<Sequence>& sequence, std::int64_t most, DecodeBatch& batch,
                        Flight& flight);
  void process(Flight& flight, DecodeResult result);
  void drawn(const std::shared_ptr<Sequence>& sequence, DecodedRow& row);
  void scored(const std::shared_ptr<Sequence>& sequence, std::size_t index, DecodedRow& row);
  void finish(const std::shared_ptr<Sequence>& sequence, FinishReason reason, std::exception_ptr error = nullptr);

  Model& model_;
  const Tokenizer tokenizer_;
  EngineOptions options_;
  std::int64_t capacity_ = 0;
  std::unique_ptr<Decoder> decoder_;
  std::vector<std::shared_ptr<Sequence>> active_;  // by slot; null: free
  std::deque<Flight> flights_;                     // submitted steps, not yet collected
  std::uint64_t joined_ = 0;                       // sequences that have occupied a slot so far

  mutable std::mutex mutex_;  // protects the members below
  mutable std::condition_variable changed_;
  std::deque<std::shared_ptr<Sequence>> waiting_;
  std::vector<SequenceId> cancels_;
  SequenceId next_id_ = 1;
  EngineStatistics statistics_;
};

// Returns the beginning of the sequence that predicts token number `length` of a text. A sequence begins every half
// seq_len, and each token is predicted in the first sequence that reaches it (Reading::evaluation in
// data/token_data.h).
std::size_t sequence_begin(std::size_t length, std::int64_t seq_len);

}  // namespace some
