// Scaled-down versions of recipes, for a laptop or a test (`some lab run --scale F`).
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace some {

// Returns the recipe scaled down by F (0 < F <= 1; 1 changes nothing), a pure function of both. About F of the stories
// (documents) are read in about F^0.4 of the steps by a model of about F^0.6 of the width:
//   stories          F                     at least 200 (training) and 50 (validation); 0 (all) counts as 20,000
//   batch            F^0.6                 at least 4
//   vocab            F^0.4                 at least 1,024: a smaller one makes stories longer than the rows
//   d_model, d_ffn   F^0.6                 at least 32; d_model a multiple of twice the heads; heads halved while
//                                          a head would be narrower than 16
//   query_dim        F^0.6                 at least 16; 0 stays
//   layers           F^0.25                at least 2
//   experts          F^0.25                at least 2 top_k; top_k, a subject of the studies, stays
//   seq_len          F^0.35                at least 256, so that few stories are cut
//   steps            as batch and stories  max_steps, decay_warmup, warmup_steps, and the steps between evaluations,
//                                          checkpoints, measures and key positions
//   lr               (width)^-0.5          a narrower model tolerates, and fewer steps need, larger ones
//   theta            as the uniform load of an expert per step, if usage counts tokens
//   beta_layer_scale, frozen_layers        values of the full model at the same relative depth
// No floor raises a number above the recipe's own. Settings of stages are scaled in the same way.
Recipe scale_recipe(const Recipe& recipe, double factor);

// Returns the title of a scaled recipe with its actual sizes, beginning with "a4 scaled by 0.05: 5 layers of 96".
std::string scaled_title(const Recipe& scaled, const std::string& name, double factor);

// Returns the name of a scaled recipe: "a4" at 0.05 -> "a4@0.05", so that scaled runs never share a folder with full
// ones; "a4" at 1.
std::string scaled_name(const std::string& name, double factor);

}  // namespace some
