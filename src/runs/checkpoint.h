// Checkpoints of a run folder: checkpoints/step-N/{model,optimizer}.safetensors, written to a temporary folder,
// flushed, then renamed. The frozen library is never stored: its definition is in the run's config.toml and its hash in
// the checkpoint; loading rebuilds it and compares the hash.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/files/json.h"
#include "model/model.h"
#include "runs/identity.h"
#include "tensor/safetensors.h"

namespace some {

struct CheckpointName {
  std::int64_t step = 0;
  std::string folder;
};
// Returns checkpoints ordered by step; none if the folder does not exist. Throws if the folder cannot be read.
std::vector<CheckpointName> list_checkpoints(const std::string& run_folder);
// which: "latest", "best" or a step number. Throws bad_input with the existing checkpoints if it is not found.
CheckpointName find_checkpoint(const std::string& run_folder, const std::string& which);

// Tensors of a checkpoint's model.safetensors, by name: parameters and key stores. They share the model's memory.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
NamedTensors model_tensors(Model& model);

// `state`: what the trainer needs to resume (JSON, in the header of the optimizer file). `metrics`: content of
// metrics.jsonl at this step, stored with the checkpoint so that a file lost in a power failure can be restored.
void save_checkpoint(const std::string& run_folder, const RunIdentity& identity, std::int64_t step, Model& model,
                     const nlohmann::json& state, const std::string& metrics = "");
// Loads into a model with the same configuration. With `with_optimizer` also loads the moments and returns the state.
// Throws bad_input if the files are of another run, tokenizer or step, or do not belong together.
nlohmann::json load_checkpoint(const CheckpointName& checkpoint, const RunIdentity& identity, Model& model,
                               bool with_optimizer);
// Performs only the check, which reads the headers of the files.
void check_checkpoint(const CheckpointName& checkpoint, const RunIdentity& identity);
// Returns every tensor of a checkpoint with optimizer, in a fixed order. After writing to them, the caller must refresh
// the compute copy of the parameters.
std::vector<Tensor> learned_tensors(Model& model);
// Reads the state stored in an optimizer file, for example to show the progress of a run.
JsonObject read_state(const SafetensorsFile& optimizer);
nlohmann::json read_checkpoint_state(const CheckpointName& checkpoint);
// Returns the metrics passed to save_checkpoint; empty if the checkpoint was written by an older version.
std::optional<std::string> read_checkpoint_metrics(const CheckpointName& checkpoint);
void remove_checkpoint(const CheckpointName& checkpoint);
// Renames a checkpoint that is later than the one a run resumes from; returns its new name.
std::string set_checkpoint_aside(const CheckpointName& checkpoint);
// Removes what a killed process left half written or half removed. The caller must hold the run (RunLock).
void tidy_checkpoints(const std::string& run_folder);

// Small files in the run folder that name a step: the best checkpoint so far, for people and scripts; and the latest,
// which shows that there were checkpoints if their folder appears empty.
void mark_best(const std::string& run_folder, std::int64_t step);
void mark_latest(const std::string& run_folder, std::int64_t step);
std::optional<std::int64_t> marked_best(const std::string& run_folder);  // content of the file `best`
std::optional<std::int64_t> marked_latest(const std::string& run_folder);
// Returns the best step from the state of the last checkpoint, since a run may be killed before it writes the marker;
// from the marker if the state cannot be read.
std::optional<std::int64_t> best_step(const std::string& run_folder);

// Saves only the key positions, for plots of their movement: keys/step-N.safetensors. run: the run's id; empty if it is
// not known yet.
void save_key_positions(const std::string& run_folder, const std::string& run, std::int64_t step, Model& model);
// Returns the saved key positions of every layer, on the CPU; empty if the file does not exist.
std::vector<Tensor> load_key_positions(const std::string& run_folder, const std::string& run, std::int64_t step,
                                       Model& model);
std::vector<CheckpointName> list_key_positions(const std::string& run_folder);
// Opens one of them. Throws bad_input if it was written by another run or at another step.
SafetensorsFile open_key_positions(const CheckpointName& positions, const std::string& run);

}  // namespace some
