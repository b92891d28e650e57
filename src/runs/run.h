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
  }  // what may differ between identical runs: seconds and rates
  std::string rates() const { return folder + "/rates.jsonl"; }  // these too, line by line while the run goes on
  std::string load() const { return folder + "/load.jsonl"; }    // what every expert carries (runs/load_file.h)
  std::string events() const { return folder + "/events.out.tfevents"; }  // the metrics for TensorBoard
  std::string data() const { return folder + "/data.json"; }              // what was taken of which text
  std::string memory() const { return folder + "/memory.safetensors"; }   // of the training text (train/remember.h)
  std::string cache() const;                                  // tokenised data, shared by the runs of one parent folder
  TokenCache spare_cache() const { return {cache(), true}; }  // the same for who only reads the run
};

// What a run takes of its texts. In data.json: {"train": {"documents", "tokens", "used", "cut", "sequences"}, "valid":
// {...}}, and "stages" where there are some: one such object each, whose sums the others are.
struct RunData {
  DataUse train, valid;
  std::vector<RunData> stages;
};
void save_run_data(const RunPaths& paths, const RunData& data);
std::optional<RunData> read_run_data(const RunPaths& paths);  // nothing for a run of an older program

// A trained model, ready to be studied. Throws bad_input when the folder is not a run or is damaged.
struct OpenedRun {
  RunPaths paths;
  Recipe recipe;  // as it was trained up to the checkpoint: of a run with stages, that of the stage
  Tokenizer tokenizer;
  std::shared_ptr<Context> ctx;
  std::unique_ptr<Model> model;
  std::int64_t step = 0;
};
struct OpenOptions {
  std::string checkpoint = "latest";
  DeviceChoice device;
  std::optional<PrecisionChoice> precision;  // none: as trained where the device can, otherwise fp32
  Host host;
};
OpenedRun open_run(const std::string& folder, const OpenOptions& options);
Recipe read_run_recipe(const std::string& folder, const std::vector<std::string>& changes = {});
// Of a run with stages, the recipe of the stage that a checkpoint was written in; otherwise the recipe itself.
Recipe recipe_at(const Recipe& recipe, const CheckpointName& checkpoint);
// Whether the run came to its end. Told by the last checkpoint; where all checkpoints were removed, by what the run
// wrote when it ended.
bool run_is_finished(const std::string& folder);

// The context a recipe asks for.
std::shared_ptr<Context> recipe_context(const TrainConfig& train, const Host& host);
// Ranks on one machine take their share of its cores, and its GPUs in turn, where the recipe names none.
std::shared_ptr<Context> recipe_context(const TrainConfig& train, const Log& log, const Group& group,
                                        const Group& sharing);
// The ranks that hold the experts together with this one: neighbours, train.expert_ranks of them.
Group make_expert_group(const Group& group, int expert_ranks);
// What computes there: the library of matrix products with its version and instruction set, or the GPU. Another one may
// change the last bits of a result.
std::string computed_by(const Context& ctx);

}  // namespace some
