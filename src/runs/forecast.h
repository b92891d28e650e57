// What a recipe amounts to before anything runs: parameters, steps, work, memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/token_data.h"
#include "model/operations.h"
#include "recipe/recipe.h"
#include "runtime/context.h"

namespace some {

struct Forecast {
  ParameterCounts parameters;
  std::optional<DataUse> text;        // for training: estimated, or as counted
  std::string unknown_reason;         // empty where it is known
  std::int64_t max_sequences = 0;     // as many as the text could give
  std::optional<std::int64_t> steps;  // where the text is known
  std::int64_t sequences_per_step = 0;
  std::int64_t slots_per_step = 0;  // places for tokens
  std::optional<double> real_tokens_per_step;
  // Padding is computed only where it counts. Where the text is unknown every sequence is taken to be full: then work
  // and memory are upper bounds.
  double tokens_per_step = 0;
  OperationCount operations;            // of a step
  DeviceKind device = DeviceKind::cpu;  // that the memory is meant for; "auto" is what this machine would do
  Precision precision = Precision::fp32;
  MemoryEstimate memory;     // of one rank; of the library its part of it (train.expert_ranks)
  bool memory_known = true;  // not in f64
  double memory_limit = 0;   // what the device has; infinite where that is not known
  bool fits() const { return memory.total() <= memory_limit; }
};

// Looks at the training text, unless it is known how much a run takes of it; a text that cannot be read is told.
Forecast forecast_run(const Host& host, const Recipe& recipe, const std::optional<DataUse>& counted = std::nullopt);
// What it amounts to on each of several ranks (docs/scale.md).
struct RankForecast {
  std::int64_t micro_batches = 0;  // of a step, at most
  double busy = 0;                 // share of all ranks' time that is work; the last rank may have fewer
  double memory_bytes = 0;
  double sent_bytes_per_step = 0;
  double expert_bytes_per_step = 0;  // of these, to and from the experts of other ranks
};
RankForecast forecast_ranks(const Recipe& recipe, const Forecast& forecast, int ranks);
// From what one rank with all experts needs to what each of `ranks` does that hold them together, where every expert is
// chosen as often: `tokens` of a pass. (Where all choose the experts of one rank, that one needs more.)
void share_experts(MemoryEstimate& memory, const ModelConfig& config, double tokens, bool bf16, int ranks);
// bad_input with the prediction where a run needs more memory than there is.
void check_memory(const Forecast& forecast);
// The same for a trained model that is only opened.
void check_memory(const ModelConfig& config, const Context& ctx);

}  // namespace some
