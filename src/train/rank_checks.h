// What the ranks of a group must have in common before they train together.
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

// All of these are bad_input on every rank, with what differs and where.

// Program, and what it was told.
void check_same_command(const Group& group, const Recipe* recipe, const std::vector<std::string>& changes);
// What computes, and the text.
void check_same_machines(const Context& ctx, const std::vector<TrainingStage>& training_stages);
// What was opened, and what it is to be used on.
void check_same_run(const OpenedRun& run, const Group::Facts& more);
// A step's micro-batches must be enough for every rank to have some, and so must be the experts where ranks share them.
void check_shares(int ranks, const Recipe& recipe);
std::optional<Error> problem_with_shares(int ranks, const Recipe& recipe);  // what it would throw

// The recipe of rank 0, for all.
Recipe share_recipe(const Group& group, const Recipe& recipe, const std::string& origin);

}  // namespace some
