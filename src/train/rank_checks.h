// Checks what the ranks of a group must have in common before they train together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "core/error.h"
#include "recipe/recipe.h"
#include "runs/run.h"
#include "train/stage.h"

namespace some {

// All of these throw bad_input on every rank, naming what differs and on which ranks.

// Compares program version and command line.
void check_same_command(const Group& group, const Recipe* recipe, const std::vector<std::string>& changes);
// Compares hardware, libraries and text.
void check_same_machines(const Context& ctx, const std::vector<TrainingStage>& training_stages);
// Compares the opened run, and `more`: the input it is used on.
void check_same_run(const OpenedRun& run, const Group::Facts& more);
// Checks that a step has enough micro-batches for every rank, and that there are enough experts if ranks share them.
void check_rank_shares(int ranks, const Recipe& recipe);
std::optional<Error> rank_shares_error(int ranks, const Recipe& recipe);  // returns the error instead

// Returns the recipe of rank 0 on all ranks.
Recipe broadcast_recipe(const Group& group, const Recipe& recipe, const std::string& origin);

}  // namespace some
