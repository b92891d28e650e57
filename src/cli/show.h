// What several commands show in the same way.
#pragma once

#include <string>

#include "analysis/trace.h"
#include "cli/command.h"
#include "inference/generate.h"
#include "runs/run.h"

namespace some {

// A new token as it is shown while a text grows.
std::string shown_token(const Tokenizer& tokenizer, TokenId token);
// A token as it is shown in a table: blanks and line ends made visible.
std::string visible(const std::string& bytes);
// Padded with blanks to so many columns.
std::string padded(const std::string& text, std::size_t width);
// "57 tokens, 124 tokens/s"
std::string rate_words(std::size_t tokens, double seconds);
// --temperature, --top-k, --top-p, --seed, --max-tokens
void add_sampling_flags(Command& command, GenerateOptions& options);
// A table of the experts that each token chose.
void print_trace(const Trace& trace, const OpenedRun& run);

}  // namespace some
