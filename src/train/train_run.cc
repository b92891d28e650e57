// How a run begins and goes on: its folder, its text, its last checkpoint.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/folders.h"
#include "train/trainer.h"

namespace some::train {
namespace fs = std::filesystem;
namespace {

// What belongs to the machine, not to the run.
constexpr const char* machine_settings[] = {"train.device", "train.precision", "train.threads"};

bool belongs_to_the_machine(const std::string& key) {
  return std::any_of(std::begin(machine_settings), std::end(machine_settings),
                     [&](const char* name) { return key == name; });
}

// What killed processes left behind. The run is held (RunLock), the cache is shared with other runs.
void tidy(const RunPaths& paths) {
  tidy_checkpoints(paths.folder);
  for (const std::string& folder : {paths.folder, paths.folder + "/keys", paths.folder + "/inspect", paths.cache()}) {
    if (there_is(folder)) remove_half_written_files(folder);
  }
}

void refuse_a_second_run(const RunPaths& paths) {
  if (there_is(paths.config()))
    bad_input("{0} already holds a run: go on with 'some train --resume {0}', or choose another --out", paths.folder);
  // The recipe is written before either.
  if (!list_checkpoints(paths.folder).empty() || there_is(paths.metrics()))
    bad_input("{} holds checkpoints or metrics of a run whose config.toml is gone: choose another --out", paths.folder);
}

std::string steps_of(const std::vector<CheckpointName>& checkpoints) {
  std::string text;
  for (const CheckpointName& one : checkpoints) text += fmt::format("{}{}", text.empty() ? "" : ", ", one.step);
  return text;
}

// The checkpoint to go on from; nothing: the run begins anew, since it never came to its first one.
std::optional<CheckpointName> choose_checkpoint(const std::string& folder, std::optional<std::int64_t> wanted) {
  const auto all = list_checkpoints(folder);
  if (wanted) {
    for (const CheckpointName& one : all) {
      if (one.step == *wanted) return one;
    }
    bad_input("--from-step {}: {} has {}", *wanted, folder,
              all.empty() ? "no checkpoint" : "checkpoints of the steps " + steps_of(all));
  }
  const auto latest = marked_latest(folder);
  if (all.empty()) {
    if (run_is_finished(folder))
      bad_input(
          "{} is finished and its checkpoints were removed: there is nothing to go on from; train into another folder "
          "with --out",
          folder);
    if (latest)
      bad_input(
          "{0}/checkpoints is empty, but the run had saved step {1}: bring the checkpoints back (is a disk not "
          "mounted?), or train into another folder with --out",
          folder, *latest);
    return std::nullopt;
  }
  if (latest && *latest > all.back().step)
    bad_input(
        "{0}: the checkpoint of step {1}, its last one, is gone: bring it back, or go back to step {2} with 'some "
        "train --resume {0} --from-step {2}'",
        folder, *latest, all.back().step);
  return all.back();
}

}  // namespace

std::unique_ptr<Trainer> Trainer::start(const Recipe& recipe, const std::string& folder, TrainHooks hooks) {
  const RunPaths paths{folder};
  if (there_is(folder) && !there_is_folder(folder)) bad_input("--out {} is a file, not a folder", folder);
  refuse_a_second_run(paths);
  // A device or precision that is not there is told before anything is read or written.
  std::shared_ptr<Context> ctx = recipe_context(recipe.train, make_host(recipe.train.threads, hooks.log));
  check_recipe(*ctx, recipe);
  auto lock = std::make_unique<RunLock>(folder);
  refuse_a_second_run(paths);  // one that ended while this one looked at its data
  tidy(paths);
  Course course = prepare_course(*ctx, recipe, "", paths.cache(), hooks.prepare);
  std::unique_ptr<Trainer> trainer(new Trainer(ctx, folder, std::move(lock), std::move(course), std::move(hooks)));
  trainer->state_.recipe = recipe_settings(recipe);
  trainer->tokenizer().save(paths.tokenizer());
  // Written last: a folder with a config.toml is a run.
  write_file_atomic(paths.config(), write_recipe(recipe));
  trainer->begin();
  return trainer;
}

std::unique_ptr<Trainer> Trainer::resume(const std::string& folder, const ResumeOptions& options, TrainHooks hooks) {
  const Recipe written = read_run_recipe(folder);
  for (const std::string& change : options.changes) {
    if (!belongs_to_the_machine(change.substr(0, change.find('='))))
      bad_input("{}: a resumed run keeps its recipe; only train.device, train.precision and train.threads may change",
                change);
  }
  const RunPaths paths{folder};
  auto lock = std::make_unique<RunLock>(folder);
  tidy(paths);
  const auto checkpoint = choose_checkpoint(folder, options.from_step);
  const Recipe recipe = read_run_recipe(folder, options.changes);
  std::shared_ptr<Context> ctx = recipe_context(recipe.train, make_host(recipe.train.threads, hooks.log));
  // The tokenizer of the run, not a new one: the ids must mean the same.
  Course course = prepare_course(*ctx, recipe, paths.tokenizer(), paths.cache(), hooks.prepare);
  std::unique_ptr<Trainer> trainer(new Trainer(ctx, folder, std::move(lock), std::move(course), std::move(hooks)));
  trainer->state_.recipe = recipe_settings(written);
  if (checkpoint)
    trainer->load(*checkpoint);
  else
    trainer->begin();
  return trainer;
}

void Trainer::begin() {
  state_.data_hash = course_.train.hash();
  save_run_data(paths_, course_.use);
  save_key_positions(paths_.folder, 0, *model_);
  metrics_.emplace(ctx_->log, paths_, 0, std::nullopt);
}

void Trainer::load(const CheckpointName& checkpoint) {
  const TrainState now = state_;
  std::vector<CheckpointName> earlier, later;
  for (const CheckpointName& one : list_checkpoints(paths_.folder)) {
    if (one.step < checkpoint.step) earlier.push_back(one);
    if (one.step > checkpoint.step) later.push_back(one);
  }
  std::optional<std::string> kept;
  try {
    state_ = train_state_from(load_checkpoint(checkpoint, *model_, true), checkpoint.folder);
    kept = read_checkpoint_metrics(checkpoint);
    if (kept && !state_.metrics_checksum.empty() &&
        hex(checksum_of(kept->data(), kept->size())) != state_.metrics_checksum) {
      ctx_->log.warning("{}/metrics.jsonl is damaged: {} is left as it is", checkpoint.folder, paths_.metrics());
      kept.reset();
    }
  } catch (const Error& error) {
    if (earlier.empty()) throw;
    throw Error(error.fault(), fmt::format("{}; the checkpoint before it can be tried with 'some train --resume {} "
                                           "--from-step {}'",
                                           error.what(), paths_.folder, earlier.back().step));
  }
  if (state_.data_hash != course_.train.hash()) {
    bad_input(
        "{}: the training text or tokenizer is not the one this run was started with (hash {} then, {} now); bring the "
        "same data back",
        paths_.folder, hex(state_.data_hash), hex(course_.train.hash()));
  }
  compare_with_checkpoint(now);
  state_.recipe = now.recipe;
  state_.computed_by = now.computed_by;
  // From here on the folder is what it was at the checkpoint; lines and positions written after it will be written
  // again, the same.
  for (const CheckpointName& one : later)
    ctx_->log.info("the checkpoint of step {} is set aside as {}", one.step, set_checkpoint_aside(one));
  if (!later.empty() || marked_latest(paths_.folder) != checkpoint.step) mark_latest(paths_.folder, checkpoint.step);
  // A kill may have come between the checkpoint and its mark, or before those it makes superfluous were removed.
  if (state_.best_step) mark_best(paths_.folder, *state_.best_step);
  remove_surplus();
  saved_at_ = state_.step;
  metrics_.emplace(ctx_->log, paths_, state_.metrics_bytes, kept);
  for (const CheckpointName& positions : list_key_positions(paths_.folder)) {
    if (positions.step > state_.step) fs::remove(positions.folder);
  }
}

// What was changed by hand, or came with another machine, is told: the run goes on with it, but is no longer the one
// that would have come without a stop.
void Trainer::compare_with_checkpoint(const TrainState& now) const {
  std::string changes;
  for (const auto& [key, value] : now.recipe) {
    const auto then = state_.recipe.find(key);
    if (then == state_.recipe.end() || then->second == value) continue;
    changes += fmt::format("{}{} = {} (it was {})", changes.empty() ? "" : ", ", key, value, then->second);
  }
  if (!changes.empty())
    ctx_->log.warning("{} was changed since step {}: {}; the run goes on with the new settings", paths_.config(),
                      state_.step, changes);
  if (!state_.computed_by.empty() && state_.computed_by != now.computed_by)
    ctx_->log.warning(
        "computed by {} now, by {} up to step {}: the last bits of the results may differ from those of a run "
        "without a stop",
        now.computed_by, state_.computed_by, state_.step);
}

void settle_finished_run(const std::string& folder) {
  const RunPaths paths{folder};
  const Recipe recipe = read_run_recipe(folder);
  const RunLock lock(folder);
  tidy(paths);
  const auto all = list_checkpoints(folder);
  if (all.empty()) return;
  const TrainState state = train_state_from(read_checkpoint_state(all.back()), all.back().folder);
  if (marked_latest(folder) != all.back().step) mark_latest(folder, all.back().step);
  if (state.best_step && marked_best(folder) != state.best_step) mark_best(folder, *state.best_step);
  remove_surplus_checkpoints(folder, recipe.train.keep_checkpoints, state);
}

TrainResult start_run(const Recipe& recipe, const std::string& folder, const TrainHooks& hooks) {
  return Trainer::start(recipe, folder, hooks)->run();
}

TrainResult resume_run(const std::string& folder, const ResumeOptions& options, const TrainHooks& hooks) {
  return Trainer::resume(folder, options, hooks)->run();
}

}  // namespace some::train
