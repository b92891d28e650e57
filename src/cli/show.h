// Output shared by several commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/pages/token_sources.h"
#include "analysis/trace.h"
#include "cli/command.h"
#include "inference/generate.h"
#include "runs/run.h"

namespace some {
struct ContinualReport;  // analysis/continual/continual.h
}

namespace some {

// Returns a new token as displayed while text is generated.
std::string shown_token(const Tokenizer& tokenizer, TokenId token);
// Returns a token as displayed in a table: spaces and line ends are made visible.
std::string visible(const std::string& bytes);
// Returns the text padded with spaces to `width` columns.
std::string padded(const std::string& text, std::size_t width);
// "57 tokens, 124 tokens/s"
std::string format_rate(std::size_t tokens, double seconds);
// --temperature, --top-k, --top-p, --min-p, the penalties, --stop, --seed, --max-tokens, --ignore-eos
void add_sampling_flags(Command& command, GenerateOptions& options);
// A token with its sources in a memory.
struct SourcedToken {
  std::int64_t index = 0;  // position in the whole text
  std::string text;
  TokenSources sources;
};
// Prints a table: per token its probability, the shares of model, slots and contexts in it, and the largest source of
// each kind.
void print_sources(const std::vector<SourcedToken>& tokens);
// Prints a table of the methods of each order, as means over the runs.
void print_continual(const std::vector<ContinualReport>& reports);
// Prints a table of the experts assigned to each token.
void print_trace(const Trace& trace, const OpenedRun& run);

}  // namespace some
