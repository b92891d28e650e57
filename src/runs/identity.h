// Identity of a run and its tokenizer. Every file of a checkpoint stores it in its metadata, together with the step and
// a hash of the tensors in the checkpoint's other file. Loading weights therefore detects a file of another run or
// step.
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

// Returns the id of a new run: a hash of its settings, tokenizer and text. It is not random because equal runs must
// write equal files. Settings that never change the first step (lengths, logging, the machine, paths of text and
// tokenizer) are excluded: runs that differ only in these have interchangeable checkpoints.
std::string new_run_id(const Recipe& recipe, const Tokenizer& tokenizer, std::uint64_t text_hash);
// The same for a run initialized with other weights; `origin` describes them.
std::string new_run_id(const std::string& origin, Model& model, const Tokenizer& tokenizer);

}  // namespace some
