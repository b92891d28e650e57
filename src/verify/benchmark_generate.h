// Speed of generation through the engine (inference/engine.h), with untrained weights: the time of a step does not
// depend on what the weights are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "inference/sampling.h"
#include "recipe/recipe.h"

namespace some {

struct GenerateBenchOptions {
  std::vector<std::int64_t> sequences = {1, 16};  // generated at the same time, one measurement each
  std::int64_t prompt = 16, tokens = 256;         // per sequence
  int repeats = 3;
  bool half_weights = false;
  SamplingOptions sampling;
  std::int64_t memory_slots = 0, contexts = 0;  // of a memory that is mixed into every prediction; 0: none
  bool report = false;                          // the experts of every token, and the slots behind it
};

struct GenerateBenchResult {
  struct One {
    std::int64_t sequences = 0;
    double tokens_per_second = 0;  // median of the repeats, over all sequences, without reading the prompts
    double fastest = 0, slowest = 0;
    double step_seconds = 0;   // median
    double first_seconds = 0;  // from the request to the first token of the last sequence, median
    double cache_bytes = 0;
  };
  std::string device, matrix_library;
  double parameters = 0;  // read by each step: all parameters and the library
  std::vector<One> measured;
};

GenerateBenchResult bench_generate(const Recipe& recipe, const GenerateBenchOptions& options,
                                   const std::function<void(const std::string&)>& progress);

}  // namespace some
