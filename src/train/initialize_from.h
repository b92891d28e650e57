// Initializes a run from the weights and keys of another one (`some train --from RUN`).
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
  bool optimizer = false;             // also load AdamW's moments
};

// The checkpoint that initializes a new run.
struct Source {
  Recipe recipe;  // recipe of that run, as trained up to the checkpoint
  CheckpointName checkpoint;
  InitializedFrom named;
};
Source find_source(const FromOptions& options);
// Returns the default recipe for such a run: that of the other run, for the stage of the checkpoint, with overrides.
Recipe source_recipe(const FromOptions& options, const std::vector<std::string>& overrides);
// Returns the checkpoint named in a run's config.toml. Throws bad_input if it is missing or has changed.
Source find_source(const InitializedFrom& named);

// Throws bad_input that lists every setting that must be equal and is not. Returns the settings that may differ and do:
// "train.lr = 0.001 (0.0006)".
std::vector<std::string> check_source(const Recipe& recipe, const Source& source);

// Loads the checkpoint into a model created with the recipe's rules. Key state that these rules require and the other
// run did not have starts from the keys as they are. Returns the number of steps in the moments: 0 if they start empty.
std::int64_t load_source(const Source& source, Model& model);

}  // namespace some
