// A run that begins with the weights and keys of another one (`some train --from RUN`).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model.h"
#include "recipe/recipe.h"
#include "runs/checkpoint.h"

namespace some {

struct FromOptions {
  std::string run;
  std::string checkpoint = "latest";  // "latest", "best" or a step
  bool optimizer = false;             // AdamW's moments too
};

// The checkpoint that a new run begins with.
struct Source {
  Recipe recipe;  // of that run, as it was trained up to the checkpoint
  CheckpointName checkpoint;
  InitializedFrom named;
};
Source find_source(const FromOptions& options);
// What such a run has for settings where it is not given a recipe: those of the other one, of the stage it was in.
Recipe source_recipe(const FromOptions& options, const std::vector<std::string>& overrides);
// The checkpoint that a run's config.toml names. bad_input when it is gone or has changed since.
Source find_source(const InitializedFrom& named);

// bad_input, with every setting that must be the same and is not. Returns the settings that differ and may: "train.lr =
// 0.001 (0.0006)".
std::vector<std::string> check_source(const Recipe& recipe, const Source& source);

// Fills a model made with the recipe's rules. What these rules keep of every key, and the other run's did not, starts
// from the keys as they are. Returns how many steps the moments have seen: 0 where they start afresh.
std::int64_t load_source(const Source& source, Model& model);

}  // namespace some
