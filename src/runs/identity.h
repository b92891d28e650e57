// Identity of a run and its tokenizer. Every file of a checkpoint has it in its metadata, together with the step and a
// hash of the tensors of the checkpoint's other file, so a file of another run or step is noticed wherever weights are
// loaded.
#pragma once

#include <cstdint>
#include <string>

#include "model/model.h"
#include "recipe/recipe.h"
#include "text/tokenizer.h"

namespace some {

struct RunIdentity {
  std::string run;        // [run] id in config.toml; empty for runs of older versions
  std::string tokenizer;  // hash of the tokenizer
};

RunIdentity identity_of(const Recipe& recipe, const Tokenizer& tokenizer);

// Returns the id of a new run: a hash of its settings, tokenizer and text. It is not drawn at random because equal runs
// must write equal files. Settings that never change the first step (lengths, logging, the machine, paths of text and
// tokenizer) are left out: runs that differ only in these have interchangeable checkpoints.
std::string new_run_id(const Recipe& recipe, const Tokenizer& tokenizer, std::uint64_t text_hash);
// The same for a run whose weights come from elsewhere: `origin` says from where.
std::string new_run_id(const std::string& origin, Model& model, const Tokenizer& tokenizer);

}  // namespace some
