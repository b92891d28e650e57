// A trace of a text: for each token and layer the experts and gates of that token (spec 6).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/assignments.h"
#include "analysis/memory_view.h"

namespace some {

// The memory's part in a token that was predicted from those before it.
struct Remembered {
  double share = 0;                                  // of the token's probability
  double nll = 0;                                    // of the mixture, in nats
  std::vector<std::pair<double, Passage>> passages;  // of the slots with this token, by their part in its probability
};

struct Trace {
  std::vector<std::string>
      words;  // what each token stands for in the text, byte for byte (bytelevel) or as in the vocabulary
  std::size_t prompt_tokens = 0;  // of these the first are the prompt where the rest was generated; 0: all was given
  std::string text;
  std::string stopped;      // why generation ended; empty where nothing was generated
  std::vector<int> layers;  // the layers asked for
  Choices choices;
  std::vector<Remembered>
      remembered;  // one a token where there was a memory; nothing of the first, which nobody predicts
};

// Traces the text as the model reads it. bad_input when it has no token the tokenizer knows, or more than the model's
// seq_len.
Trace trace_text(OpenedRun& run, const std::string& text, const std::vector<int>& layers, Memory* memory = nullptr);
// Traces ids that are already there (a prompt and what was generated from it).
Trace trace_tokens(OpenedRun& run, const std::vector<TokenId>& ids, const std::vector<int>& layers,
                   Memory* memory = nullptr);

nlohmann::json to_json(const Trace& trace, const OpenedRun& run);

// A page of its own, without anything from outside: pick a token or an expert and see where else it fires.
std::string trace_page(const Trace& trace, const OpenedRun& run);

// "0,2" as layer numbers; empty: every layer.
std::vector<int> parse_layers(const std::string& list, const ModelConfig& config);

}  // namespace some
