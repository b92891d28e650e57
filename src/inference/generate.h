// Text from a trained model: batches of prompts, temperature, top-k, top-p, a seed, a key/value cache.
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
  double temperature = 0.8;  // 0: always the likeliest token
  int top_k = 0;             // 0: all
  double top_p = 1.0;        // 1: all
  std::uint64_t seed = 0;
  std::size_t first = 0;  // number of the first prompt, where many are written in several calls
  std::int64_t max_tokens = 200;
  bool stop_at_eos = true;
  // A text longer than the model's seq_len goes on with a sliding context, as evaluation reads long documents: when a
  // sequence is full its first half is dropped and the rest is read again. false: it ends there.
  bool slide = true;
  std::function<bool()> stop;     // asked after every token; true ends all texts where they are
  double router_temperature = 0;  // 0: eval_temp
  // Keys go on learning from what is read and written (spec 7): an update after every adapt_window tokens of all
  // prompts together. 0: frozen.
  std::int64_t adapt_window = 0;
  std::string adapt_rules;      // "alpha,beta,delta" in any choice; empty: as the run was trained
  std::int64_t adapt_step = 0;  // updates of the run so far
  LayerObserver look;           // told of every layer's choices for the tokens just read; may be empty
  // A memory has its say in every token. It hears each prompt first, so that its weight is what it has earned there.
  Memory* memory = nullptr;
};

struct Generated {
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;  // the new ones, without EOS
  std::string text;             // prompt and continuation, decoded together
  std::string stopped;  // "eos", "length" (max_tokens), "asked" (by `stop`) or "context" (full, and not to slide)
};

// Told of each new token of each prompt, for showing text as it comes.
using TokenObserver = std::function<void(std::size_t prompt, TokenId token)>;

// One continuation a prompt. A prompt without a single token is bad input, and so is one that fills the model's
// seq_len where the context does not slide.
std::vector<Generated> generate(Model& model, const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                                const GenerateOptions& options, const TokenObserver& observe = {});

void check(const GenerateOptions& options);  // bad_input where a number makes no sense

// One draw from logits; pure function of (logits, options, stream, position). Exposed for tests.
TokenId sample_token(const double* logits, int vocab, const GenerateOptions& options, double uniform);

}  // namespace some
