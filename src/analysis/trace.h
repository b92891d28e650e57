// Trace of a text: the experts and gates of each token in each layer (spec 6).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/assignments.h"
#include "analysis/pages/token_sources.h"

namespace some {

// The memory's contribution to the prediction of a token.
struct MemoryContribution : TokenSources {
  double nll = 0;  // loss of the mixture, in nats
};

struct Trace {
  std::vector<std::string> words;  // the text of each token, byte for byte (bytelevel) or as in the vocabulary
  // number of leading prompt tokens if the rest was generated; 0: the whole text was given
  std::size_t prompt_tokens = 0;
  std::string text;
  std::string stopped;      // why generation ended; empty if nothing was generated
  std::vector<int> layers;  // the requested layers
  Choices choices;
  std::vector<MemoryContribution>
      remembered;  // one per token if there is a memory; empty for the first token, which is not predicted
};

// Traces the text as the model reads it. Throws (bad_input) if it contains no token known to the tokenizer, or more
// tokens than the model's seq_len.
Trace trace_text(OpenedRun& run, const std::string& text, const std::vector<int>& layers, Memory* memory = nullptr);
// Traces token ids (a prompt and its generated continuation).
Trace trace_tokens(OpenedRun& run, const std::vector<TokenId>& ids, const std::vector<int>& layers,
                   Memory* memory = nullptr);

nlohmann::json to_json(const Trace& trace, const OpenedRun& run);

// Returns a self-contained page: selecting a token or an expert shows where else the expert fires.
std::string trace_page(const Trace& trace, const OpenedRun& run);

// Parses layer numbers such as "0,2"; empty: all layers.
std::vector<int> parse_layers(const std::string& list, const ModelConfig& config);

}  // namespace some
