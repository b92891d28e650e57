// A run folder: config.toml (resolved), tokenizer.json, metrics.jsonl, events.out.tfevents, timing.jsonl, checkpoints/,
// keys/.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/token_data.h"
#include "model/model.h"
#include "recipe/recipe.h"
#include "runs/checkpoint.h"

namespace some {

struct RunPaths {
  std::string folder;
  std::string config() const { return folder + "/config.toml"; }
  std::string tokenizer() const { return folder + "/tokenizer.json"; }
  std::string metrics() const { return folder + "/metrics.jsonl"; }
  std::string timing() const {
    return folder + "/timing.jsonl";
  }  // content that may differ between identical runs: seconds and rates
  std::string rates() const { return folder + "/rates.jsonl"; }           // the same, line by line during the run
  std::string load() const { return folder + "/load.jsonl"; }             // load of every expert (runs/load_file.h)
  std::string samples() const { return folder + "/samples.jsonl"; }       // generated texts (runs/samples_file.h)
  std::string events() const { return folder + "/events.out.tfevents"; }  // the metrics for TensorBoard
  std::string data() const { return folder + "/data.json"; }              // amount of each text used
  std::string memory() const { return folder + "/memory.safetensors"; }   // of the training text (train/remember.h)
  std::string cache() const;  // tokenized data, shared by the runs of one parent folder
  TokenCache read_only_cache() const { return {cache(), true}; }  // the same folder for callers that only read the run
};

// Amount of text that a run uses. In data.json: {"train": {"documents", "tokens", "used", "cut", "sequences"}, "valid":
// {...}}; with stages also "stages", with one such object per stage, and the sums over stages above.
struct RunData {
  DataUse train, valid;
  std::vector<RunData> stages;
};
void save_run_data(const RunPaths& paths, const RunData& data);
std::optional<RunData> read_run_data(const RunPaths& paths);  // empty for runs of older versions

// A trained model opened for use. Throws bad_input if the folder is not a run or is damaged.
struct OpenedRun {
  RunPaths paths;
  Recipe recipe;  // as trained up to the checkpoint; for a run with stages, the recipe of the stage
  Tokenizer tokenizer;
  std::shared_ptr<Context> ctx;
  std::unique_ptr<Model> model;
  std::int64_t step = 0;
};
struct OpenOptions {
  std::string checkpoint = "latest";
  DeviceChoice device;
  std::optional<PrecisionChoice> precision;  // none: as trained if the device supports it, otherwise fp32
  Host host;
};
OpenedRun open_run(const std::string& folder, const OpenOptions& options);
Recipe read_run_recipe(const std::string& folder, const std::vector<std::string>& changes = {});
// Returns the recipe of the stage in which a checkpoint was written; the recipe itself if the run has no stages.
Recipe recipe_at(const Recipe& recipe, const CheckpointName& checkpoint);
// True if the run has finished, according to its last checkpoint; if all checkpoints were removed, according to the
// timing written at its end.
bool run_is_finished(const std::string& folder);

// Returns the context that a recipe specifies.
std::shared_ptr<Context> recipe_context(const TrainConfig& train, const Host& host);
// The same for several ranks. Ranks on one machine divide its cores, and are assigned its GPUs round-robin if the
// recipe names none.
std::shared_ptr<Context> recipe_context(const TrainConfig& train, const Log& log, const Group& group,
                                        const Group& sharing);
// Returns the group of ranks that share the experts with this one: train.expert_ranks consecutive ranks.
Group make_expert_group(const Group& group, int expert_ranks);
// Returns a description of what computes: the GEMM library with its version and instruction set, or the GPU. Another
// one may change the last bits of a result.
std::string computed_by(const Context& ctx);

}  // namespace some
