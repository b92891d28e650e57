// What a recipe amounts to before anything runs: parameters, steps, work, memory.
#pragma once

#include <cstdint>

#include "base/context.h"
#include "base/rooms.h"
#include "data/outlook.h"
#include "model/operations.h"
#include "train/recipe.h"

namespace some::train {

struct Forecast {
  ParameterCounts parameters;
  DataOutlook data;
  std::int64_t steps = 0;  // 0: unknown, since the text is
  std::int64_t stories_per_step = 0;
  std::int64_t slots_per_step = 0;  // places for tokens
  double tokens_per_step = 0;       // that are computed: padding only where it counts
  OperationCount operations;        // of a step
  MemoryEstimate memory;
  double memory_limit = 0;  // what the device has; infinite where that is not known
  bool fits() const { return memory.total() <= memory_limit; }
};

// Looks at the training text; a text that cannot be read is told in `data`.
Forecast forecast_run(const Host& host, const Recipe& recipe);
// bad_input with the prediction where a run needs more memory than there is.
void check_memory(const Forecast& forecast);
// The same for a trained model that is only opened.
void check_memory(const ModelConfig& config, const Context& ctx);

}  // namespace some::train
