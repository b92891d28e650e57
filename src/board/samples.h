// Texts that runs generated at their evaluations.
#pragma once

#include <string>

#include "board/answers.h"

namespace some {

// Returns for each run the steps that have texts, and the texts of the last one up to `step` (before the first, of the
// first), or with `all` those of up to 60 steps: {runs: [{id, steps, moments: [{step, epoch, samples: [{prompt, text},
// ...]}, ...]}, ...]}. Runs without texts are left out.
std::string generated_samples(const Watch& watch, const Request& request);

}  // namespace some
