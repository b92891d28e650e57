// Text generation from a trained model: batched prompts, temperature, top-k, top-p, seed, key/value cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace some {

struct GenerateOptions {
  double temperature = 0.8;  // 0: always the most likely token
  int top_k = 0;             // 0: all tokens
  double top_p = 1.0;        // 1: all tokens
  std::uint64_t seed = 0;
  std::size_t first = 0;  // index of the first prompt, if the prompts are split over several calls
  std::int64_t max_tokens = 200;
  bool stop_at_eos = true;
  // Continues beyond seq_len with a sliding context, in the same way as evaluation reads long documents: when a
  // sequence is full, its first half is dropped and the rest is read again. false: the text ends there.
  bool slide = true;
  std::function<bool()> stop;     // called after every token; true ends all texts
  double router_temperature = 0;  // 0: eval_temp
  // Keys keep learning from the text read and generated (spec 7): one update per adapt_window tokens over all prompts.
  // 0: frozen keys.
  std::int64_t adapt_window = 0;
  std::string adapt_rules;      // any subset of "alpha,beta,delta"; empty: the rules of training
  std::int64_t adapt_step = 0;  // number of updates so far, including those of training
  LayerObserver look;           // receives the routing of every layer for the tokens just read; may be empty
  // A memory that is mixed into every prediction. It reads each prompt first, which determines its mixture weight.
  Memory* memory = nullptr;
};

struct Generated {
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;  // the new tokens, without EOS
  std::string text;             // prompt and continuation, decoded together
  std::string stopped;  // "eos", "length" (max_tokens), "asked" (by `stop`) or "context" (full, without sliding)
};

// Receives each new token of each prompt, for streaming output.
using TokenObserver = std::function<void(std::size_t prompt, TokenId token)>;

// Generates one continuation per prompt. bad_input for a prompt without tokens, and for one that fills the model's
// seq_len if the context does not slide.
std::vector<Generated> generate(Model& model, const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                                const GenerateOptions& options, const TokenObserver& observe = {});

void check(const GenerateOptions& options);  // bad_input if an option is out of range

// Samples a token from logits; a pure function of its arguments. `uniform` is a random number in [0, 1). Exposed for
// tests.
TokenId sample_token(const double* logits, int vocab, const GenerateOptions& options, double uniform);

}  // namespace some
