// Estimates the cost of a recipe before it runs: parameters, steps, FLOPs, memory.
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
  std::string unknown_reason;         // empty if it is known
  double bytes_per_token = 0;         // of a sample of the text; 0 if it was counted
  std::int64_t max_sequences = 0;     // upper bound from the text
  std::optional<std::int64_t> steps;  // if the text is known
  std::int64_t sequences_per_step = 0;
  std::int64_t slots_per_step = 0;  // positions, including padding
  std::optional<double> real_tokens_per_step;
  // Padding is computed only if it counts. If the text is unknown, every sequence is assumed to be full: FLOPs and
  // memory are then upper bounds.
  double tokens_per_step = 0;
  OperationCount operations;            // per step
  DeviceKind device = DeviceKind::cpu;  // of the memory estimate; for "auto", the one this machine would use
  Precision precision = Precision::fp32;
  double pass_tokens = 0;    // computed tokens of the largest pass of the run, as far as can be foreseen
  MemoryEstimate memory;     // of one rank, with its part of the library (train.expert_ranks)
  bool memory_known = true;  // false in f64
  double memory_limit = 0;   // capacity of the device; infinite if unknown
  bool fits() const { return memory.total() <= memory_limit; }
};

// Reads the training text, unless `counted` is given. A text that cannot be read is reported in unknown_reason.
Forecast forecast_run(const Host& host, const Recipe& recipe, const std::optional<DataUse>& counted = std::nullopt);
// The estimate per rank if several ranks share the work (docs/scale.md).
struct RankForecast {
  std::int64_t micro_batches = 0;  // per step, at most
  double busy = 0;  // fraction of all ranks' time spent on work; the last rank may have fewer micro-batches
  double memory_bytes = 0;
  double sent_bytes_per_step = 0;
  double expert_bytes_per_step = 0;  // part of these: all-to-all with the experts of other ranks
};
RankForecast forecast_ranks(const Recipe& recipe, const Forecast& forecast, int ranks);
// Converts the memory of one rank with all experts to that of each of `ranks` ranks that share them, assuming uniform
// load; `tokens` per pass. (If all tokens choose experts of one rank, that rank needs more.)
void share_experts(MemoryEstimate& memory, const ModelConfig& config, double tokens, bool bf16, int ranks);
// Throws bad_input with the estimate if a run needs more memory than is available.
void check_memory(const Forecast& forecast);
// The same for a trained model that is only opened.
void check_memory(const ModelConfig& config, const Context& ctx);

}  // namespace some
