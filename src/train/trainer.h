// Training of a run folder, from its beginning or from its last checkpoint (spec 5).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/rooms.h"
#include "train/evaluate.h"
#include "train/recipe.h"
#include "train/run.h"

namespace some::train {

struct TrainProgress {
  std::int64_t step = 0, total_steps = 0;
  int epoch = 0, epochs = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  double tokens_per_second = 0, slots_per_second = 0, operations_per_second = 0;
  double matrix_rate = 0;  // of this GPU, measured; 0 on a CPU
  double seconds_left = 0;
};

struct TrainHooks {
  Log log;
  std::function<void(const TrainProgress&)> step;             // after each step whose loss was read back
  std::function<void(const nlohmann::json& line)> evaluated;  // the metrics line of an evaluation
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> prepare;
  std::function<int()> stop_signal;  // 0: go on; otherwise the number of a signal: finish the step, save, return
};

struct TrainResult {
  std::int64_t steps = 0;
  int stopped_by = 0;  // signal number; 0: the run is finished
  bool stopped_early = false;
  Evaluation final_evaluation;  // of the last evaluation in this call
};

// Makes the folder (bad_input when it already holds a run) and trains. Nothing is written when the recipe or the data
// are wrong.
TrainResult start_run(const Recipe& recipe, const std::string& folder, const TrainHooks& hooks);
// Goes on from the last checkpoint, or from the beginning when there is none yet (bad_input when the run had ended and
// they were removed). `changes` may name what may differ on
// resuming: train.device, train.threads, train.precision.
TrainResult resume_run(const std::string& folder, const std::vector<std::string>& changes, const TrainHooks& hooks);

}  // namespace some::train
