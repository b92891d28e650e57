// Small versions of recipes, for a laptop or a test (`some lab run --scale F`).
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace some {

// The recipe shrunk by F (0 < F <= 1; 1 changes nothing), a pure function of both. About F of the stories are read in
// about F^0.4 of the steps by a model of about F^0.6 of the width:
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
//   lr               (width)^-0.5          a narrower model bears, and in fewer steps needs, longer ones
//   theta            as the fair use of an expert in a step, where usage is counted in tokens
//   beta_layer_scale, frozen_layers        each layer takes what stood at the same height of the full model
// No floor raises a number above the recipe's own. The settings of stages shrink likewise.
Recipe scale_recipe(const Recipe& recipe, double factor);

// What a scaled recipe is, with the sizes it really has: "a4 scaled by 0.05: 5 layers of 96, 30 experts of 170, 4 a
// token".
std::string scaled_title(const Recipe& scaled, const std::string& name, double factor);

// "a4" at 0.05 -> "a4@0.05": scaled runs never share a folder with full ones. "a4" at 1.
std::string scaled_name(const std::string& name, double factor);

}  // namespace some
