// Checkpoints of a run folder: checkpoints/step-N/{model,optimizer}.safetensors, written to a temporary folder,
// flushed, then renamed. The frozen library is never stored: its recipe stands in the run's config.toml, its hash in
// the checkpoint, and loading rebuilds and compares it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/model.h"
#include "tensor/safetensors.h"

namespace some {

struct CheckpointName {
  std::int64_t step = 0;
  std::string folder;
};
// In the order of their steps. None where there is no folder of checkpoints; one that cannot be read is an error.
std::vector<CheckpointName> list_checkpoints(const std::string& run_folder);
// "latest", "best" or a step number; bad_input says what there is when it is not found.
CheckpointName find_checkpoint(const std::string& run_folder, const std::string& which);

// What a checkpoint's model.safetensors holds, by name: parameters and key stores. They share the model's memory.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
NamedTensors model_tensors(Model& model);

// `state`: what the trainer needs to go on (JSON, kept in the optimizer file's header). `metrics`: what metrics.jsonl
// holds at this step, kept beside it so that a file lost in a power cut can be put back.
void save_checkpoint(const std::string& run_folder, std::int64_t step, Model& model, const nlohmann::json& state,
                     const std::string& metrics = "");
// Fills a model made from the same configuration. With `with_optimizer` also the moments, and returns the state.
nlohmann::json load_checkpoint(const CheckpointName& checkpoint, Model& model, bool with_optimizer);
// Every tensor that a checkpoint with an optimizer holds, in one order. After writing to them from elsewhere the
// compute copy of the parameters is to be refreshed.
std::vector<Tensor> learned_tensors(Model& model);
// The state kept in an optimizer file, for those who only want to know how far a run is.
JsonObject read_state(const SafetensorsFile& optimizer);
nlohmann::json read_checkpoint_state(const CheckpointName& checkpoint);
// What save_checkpoint was given; nothing where an older program wrote the checkpoint.
std::optional<std::string> read_checkpoint_metrics(const CheckpointName& checkpoint);
void remove_checkpoint(const CheckpointName& checkpoint);
// Renames a checkpoint out of the way of a run that goes on from an earlier one; returns its new name.
std::string set_checkpoint_aside(const CheckpointName& checkpoint);
// Takes away what a killed process left half written or half removed. Only for whoever holds the run (RunLock).
void tidy_checkpoints(const std::string& run_folder);

// Small files in the run folder that name a step. The best checkpoint so far, for people and scripts; and the latest,
// which tells that there were checkpoints where their folder seems to be empty.
void mark_best(const std::string& run_folder, std::int64_t step);
void mark_latest(const std::string& run_folder, std::int64_t step);
std::optional<std::int64_t> marked_best(const std::string& run_folder);  // what the file `best` says
std::optional<std::int64_t> marked_latest(const std::string& run_folder);
// As the last checkpoint's state has it, since a run may be killed before it has marked it; where that cannot be told,
// as marked.
std::optional<std::int64_t> best_step(const std::string& run_folder);

// Key positions alone, for drawing their movement: keys/step-N.safetensors.
void save_key_positions(const std::string& run_folder, std::int64_t step, Model& model);
// Of every layer, on the CPU, as saved at a step; nothing where that file is gone.
std::vector<Tensor> load_key_positions(const std::string& run_folder, std::int64_t step, Model& model);
std::vector<CheckpointName> list_key_positions(const std::string& run_folder);

}  // namespace some
