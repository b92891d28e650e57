// How a run begins and goes on: its folder, its text, its last checkpoint.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace some::train {
namespace fs = std::filesystem;

std::unique_ptr<Trainer> Trainer::start(const Recipe& recipe, const std::string& folder, TrainHooks hooks) {
  const RunPaths paths{folder};
  const auto refuse_a_second_run = [&] {
    if (fs::exists(paths.config()))
      bad_input("{} already holds a run: go on with 'some train --resume {}', or choose another --out", folder, folder);
  };
  refuse_a_second_run();
  if (fs::exists(folder) && !fs::is_directory(folder)) bad_input("--out {} is a file, not a folder", folder);
  // A device or precision that is not there is told before anything is read or written.
  std::shared_ptr<Context> ctx = recipe_context(recipe.train, make_host(recipe.train.threads, hooks.log));
  check_recipe(*ctx, recipe);
  auto lock = std::make_unique<RunLock>(folder);
  refuse_a_second_run();  // one that ended while this one looked at its data
  Course course = prepare_course(*ctx, recipe, "", paths.cache(), hooks.prepare);
  std::unique_ptr<Trainer> trainer(new Trainer(ctx, folder, std::move(lock), std::move(course), std::move(hooks)));
  trainer->tokenizer().save(paths.tokenizer());
  // Written last: a folder with a config.toml is a run.
  write_file_atomic(paths.config(), write_recipe(recipe));
  trainer->begin();
  return trainer;
}

std::unique_ptr<Trainer> Trainer::resume(const std::string& folder, const std::vector<std::string>& changes,
                                         TrainHooks hooks) {
  read_run_recipe(folder);
  for (const std::string& change : changes) {
    if (change.rfind("train.device=", 0) != 0 && change.rfind("train.threads=", 0) != 0 &&
        change.rfind("train.precision=", 0) != 0) {
      bad_input("{}: a resumed run keeps its recipe; only train.device, train.precision and train.threads may change",
                change);
    }
  }
  auto lock = std::make_unique<RunLock>(folder);
  if (list_checkpoints(folder).empty() && run_is_finished(folder)) {
    bad_input(
        "{} is finished and its checkpoints were removed: there is nothing to go on from; train into another folder "
        "with --out",
        folder);
  }
  const RunPaths paths{folder};
  const Recipe recipe = load_recipe(paths.config(), changes);
  // The tokenizer of the run, not a new one: the ids must mean the same.
  std::shared_ptr<Context> ctx = recipe_context(recipe.train, make_host(recipe.train.threads, hooks.log));
  Course course = prepare_course(*ctx, recipe, paths.tokenizer(), paths.cache(), hooks.prepare);
  std::unique_ptr<Trainer> trainer(new Trainer(ctx, folder, std::move(lock), std::move(course), std::move(hooks)));
  const auto checkpoints = list_checkpoints(folder);
  if (checkpoints.empty())
    trainer->begin();
  else
    trainer->load(checkpoints.back());
  return trainer;
}

void Trainer::begin() {
  state_.data_hash = course_.train.hash();
  save_key_positions(paths_.folder, 0, *model_);
  metrics_.emplace(paths_, 0);
}

void Trainer::load(const CheckpointName& checkpoint) {
  state_ = train_state_from(load_checkpoint(checkpoint, *model_, true), checkpoint.folder);
  if (state_.data_hash != course_.train.hash()) {
    bad_input(
        "{}: the training text or tokenizer is not the one this run was started with (hash {} then, {} now); bring the "
        "same data back",
        paths_.folder, hex(state_.data_hash), hex(course_.train.hash()));
  }
  saved_at_ = state_.step;
  // Lines written after this checkpoint will be written again, the same.
  metrics_.emplace(paths_, state_.metrics_bytes);
  for (const CheckpointName& positions : list_key_positions(paths_.folder)) {
    if (positions.step > state_.step) fs::remove(positions.folder);
  }
  for (const CheckpointName& later : list_checkpoints(paths_.folder)) {
    if (later.step > state_.step) remove_checkpoint(later);
  }
}

TrainResult start_run(const Recipe& recipe, const std::string& folder, const TrainHooks& hooks) {
  return Trainer::start(recipe, folder, hooks)->run();
}

TrainResult resume_run(const std::string& folder, const std::vector<std::string>& changes, const TrainHooks& hooks) {
  return Trainer::resume(folder, changes, hooks)->run();
}

}  // namespace some::train
