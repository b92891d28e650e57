// State of a run besides parameters, keys and moments that is needed to resume it exactly. Stored as JSON in the header
// of a checkpoint's optimizer file.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace some {

// Result of a finished stage.
struct StageEnd {
  std::int64_t step = 0;
  std::vector<double> losses;  // on the validation text of each stage, including later stages
};

struct TrainState {
  std::int64_t step = 0;  // optimizer steps so far
  double epoch_loss = 0;  // sum of the losses of this epoch's steps
  std::int64_t epoch_steps = 0;
  std::int64_t epoch_closed_at = 0;  // the step at which the last epoch was closed
  double line_loss = 0;              // since the last metrics line
  std::int64_t line_steps = 0;
  double best = std::numeric_limits<double>::infinity();  // validation loss
  std::optional<std::int64_t> best_step;
  std::int64_t since_best = 0;     // evaluations without improvement
  std::int64_t metrics_bytes = 0;  // length of metrics.jsonl
  std::int64_t samples_bytes = 0;  // length of samples.jsonl
  std::string samples_checksum;    // of its first samples_bytes bytes; empty in older checkpoints
  std::string metrics_checksum;    // of its first metrics_bytes bytes; empty in older checkpoints
  std::uint64_t data_hash = 0;
  std::map<std::string, std::string> recipe;  // the settings of config.toml (recipe_settings)
  std::int64_t moments_before = 0;            // steps already in AdamW's moments when the run began
  std::string computed_by;                    // GEMM library and its instruction set
  bool finished = false;
  // Only for a run with stages.
  std::int64_t stages = 0;         // number of stages; 0: the run has none
  std::int64_t stage = 0;          // the current one, counted from 0
  std::int64_t stage_begin = 0;    // its first step
  std::int64_t epochs_before = 0;  // epochs of earlier stages
  std::vector<StageEnd> ends;      // of finished stages; also of the current one, before the first step of the next

  std::int64_t step_in_stage() const { return step - stage_begin; }
  bool stage_is_over() const { return static_cast<std::int64_t>(ends.size()) > stage; }
};

nlohmann::json to_json(const TrainState& state);
// `origin`: file named in messages about missing or wrong values.
TrainState train_state_from(const nlohmann::json& json, const std::string& origin);

// Removes the oldest checkpoints until `keep` are left, but never the best, the last, or the end of a stage.
void remove_surplus_checkpoints(const std::string& folder, std::int64_t keep, const TrainState& state);

}  // namespace some
