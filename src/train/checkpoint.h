// Checkpoints of a run folder: checkpoints/step-N/{model,optimizer}.safetensors, written to a temporary folder,
// flushed, then renamed. The frozen library is never stored: its recipe stands in the run's config.toml, its hash in
// the checkpoint, and loading rebuilds and compares it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/rooms.h"
#include "base/safetensors.h"
#include "model/model.h"

namespace some::train {

struct CheckpointName {
  std::int64_t step = 0;
  std::string folder;
};
std::vector<CheckpointName> list_checkpoints(const std::string& run_folder);  // in the order of their steps
// "latest", "best" or a step number; bad_input says what there is when it is not found.
CheckpointName find_checkpoint(const std::string& run_folder, const std::string& which);

// `state`: what the trainer needs to go on (JSON, kept in the optimizer file's header).
void save_checkpoint(const std::string& run_folder, std::int64_t step, Model& model, const nlohmann::json& state);
// Fills a model made from the same configuration. With `with_optimizer` also the moments, and returns the state.
nlohmann::json load_checkpoint(const CheckpointName& checkpoint, Model& model, bool with_optimizer);
// The state kept in an optimizer file, for those who only want to know how far a run is.
JsonObject read_state(const SafetensorsFile& optimizer);
void remove_checkpoint(const CheckpointName& checkpoint);

// The marker of the best checkpoint so far: a small file in the run folder.
void mark_best(const std::string& run_folder, std::int64_t step);
std::int64_t best_step(const std::string& run_folder);  // -1: none

// Key positions alone, for drawing their movement: keys/step-N.safetensors.
void save_key_positions(const std::string& run_folder, std::int64_t step, Model& model);
std::vector<CheckpointName> list_key_positions(const std::string& run_folder);

}  // namespace some::train
