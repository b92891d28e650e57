// Generates continuations of prompts with the engine (inference/engine.h); returns when all are finished.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "inference/engine.h"
#include "inference/sampling.h"
#include "memory/memory.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace some {

struct GenerateOptions : SamplingOptions {  // `stream` of each prompt is set to `first` + its index
  std::size_t first = 0;                    // index of the first prompt, if prompts are split over several calls
  std::int64_t max_tokens = 200;
  bool stop_at_eos = true;
  std::vector<std::string> stop_strings;  // stop strings: a text ends before the first one
  bool slide = true;                      // SequenceRequest::slide
  std::function<bool()> stop;             // called after every step; true ends all texts
  double router_temperature = 0;          // 0: eval_temp
  std::int64_t max_sequences = 32;        // texts generated at the same time; with adapt_window: all
  bool half_weights = false;              // CPU: weights in bf16 (DecoderOptions)
  // Keys keep learning from the text read and generated (spec 7): one update per adapt_window tokens over all prompts.
  // 0: frozen keys.
  std::int64_t adapt_window = 0;
  std::string adapt_rules;      // any subset of "alpha,beta,delta"; empty: the rules of training
  std::int64_t adapt_step = 0;  // number of updates so far, including those of training
  bool routes = false;          // TokenEvent has the experts of each token read
  // A memory that is mixed into every prediction. It reads each prompt first, which determines the mixture weights.
  Memory* memory = nullptr;
  int sources = 0;  // with a memory: TokenEvent has its shares, with at most so many slots
};

struct Generated {
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;  // the new tokens, without EOS
  std::string text;             // prompt and continuation, decoded together, without the stop string
  std::string continuation;     // the text of the new tokens, without the stop string
  // "eos", "stop" (a stop string), "length" (max_tokens), "asked" (by `stop`) or "context" (full, without sliding)
  std::string stopped;
};

// Receives each new token of each prompt, for streaming output.
using TokenObserver = std::function<void(std::size_t prompt, const TokenEvent& event)>;

// Generates one continuation per prompt. bad_input for a prompt without tokens, and for one that fills the model's
// seq_len if the context does not slide.
std::vector<Generated> generate(Model& model, const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                                const GenerateOptions& options, const TokenObserver& observe = {});

void check(const GenerateOptions& options);  // bad_input if an option is out of range

}  // namespace some
