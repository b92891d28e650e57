#include "train/run.h"

#include <filesystem>

#include "base/threads.h"
#include "train/checkpoint.h"

namespace some {
namespace fs = std::filesystem;

std::string RunPaths::cache() const {
  const fs::path parent = fs::path(folder).lexically_normal().parent_path();
  return ((parent.empty() ? fs::path(".") : parent) / "cache").string();
}

std::string resolved_precision(Device device, const std::string& precision) {
  if (precision.empty() || precision == "auto") return device == Device::cuda ? "bf16" : "fp32";
  return precision;
}

std::shared_ptr<Context> recipe_context(const TrainConfig& train) {
  set_threads(train.threads);
  const Device device = choose_device(train.device);
  return make_context(device, resolved_precision(device, train.precision));
}

Recipe read_run_recipe(const std::string& folder) {
  const RunPaths paths{folder};
  if (!fs::is_directory(folder))
    bad_input("there is no run folder {}; 'some train RECIPE --out {}' makes one", folder, folder);
  if (!fs::exists(paths.config())) bad_input("{} is not a run folder: it has no config.toml", folder);
  return load_recipe(paths.config(), {});
}

OpenedRun open_run(const std::string& folder, const OpenOptions& options) {
  OpenedRun run{
      RunPaths{folder}, read_run_recipe(folder), Tokenizer::load(RunPaths{folder}.tokenizer()), nullptr, nullptr, 0};
  const CheckpointName checkpoint = find_checkpoint(folder, options.checkpoint);
  TrainConfig train = run.recipe.train;
  train.device = options.device;
  const Device device = choose_device(options.device);
  if (!options.precision.empty())
    train.precision = options.precision;
  else if (device == Device::cpu && train.precision == "bf16")
    train.precision = "fp32";
  run.ctx = recipe_context(train);
  run.recipe.model.vocab = run.tokenizer.vocab_size();
  run.model = std::make_unique<Model>(run.ctx, run.recipe.model, false);
  load_checkpoint(checkpoint, *run.model, false);
  run.step = checkpoint.step;
  return run;
}

}  // namespace some
