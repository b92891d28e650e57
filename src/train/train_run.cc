// Starts and resumes a run: its folder, its text, its last checkpoint.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "train/extend.h"
#include "train/rank_checks.h"
#include "train/trainer.h"

namespace some {
namespace fs = std::filesystem;
namespace {

// Removes leftovers of killed processes. The run is locked (RunLock); the cache is shared with other runs.
void remove_leftovers(const RunPaths& paths) {
  tidy_checkpoints(paths.folder);
  for (const std::string& folder : {paths.folder, paths.folder + "/keys", paths.folder + "/inspect", paths.cache()}) {
    if (exists_path(folder)) remove_temporary_files(folder);
  }
}

void refuse_a_second_run(const RunPaths& paths) {
  if (exists_path(paths.config()))
    bad_input(Code::run_exists,
              "{0} already contains a run; resume it with 'some train --resume {0}', or choose another --out",
              paths.folder);
  // The recipe is written before checkpoints and metrics.
  if (!list_checkpoints(paths.folder).empty() || exists_path(paths.metrics()))
    bad_input(Code::run_exists, "{} contains checkpoints or metrics of a run without config.toml; use another --out",
              paths.folder);
}

std::string steps_of(const std::vector<CheckpointName>& checkpoints) {
  std::string text;
  for (const CheckpointName& one : checkpoints) text += fmt::format("{}{}", text.empty() ? "" : ", ", one.step);
  return text;
}

// Returns the checkpoint to resume from; empty: the run restarts, since it never reached its first checkpoint.
std::optional<CheckpointName> choose_checkpoint(const std::string& folder, std::optional<std::int64_t> wanted) {
  const auto all = list_checkpoints(folder);
  if (wanted) {
    for (const CheckpointName& one : all) {
      if (one.step == *wanted) return one;
    }
    bad_input(Code::checkpoint_not_found, "{} {}: {} has {}", "--from-step", *wanted, folder,
              all.empty() ? "no checkpoint" : "checkpoints of steps " + steps_of(all));
  }
  const auto latest = marked_latest(folder);
  if (all.empty()) {
    if (run_is_finished(folder))
      bad_input(Code::run_finished,
                "{} is finished, and its checkpoints were removed, so it cannot be resumed; use another --out", folder);
    if (latest)
      bad_input(Code::checkpoint_not_found,
                "{0}/checkpoints is empty, but the run had saved step {1}; restore the checkpoints (is a disk not "
                "mounted?), or use another --out",
                folder, *latest);
    return std::nullopt;
  }
  if (latest && *latest > all.back().step)
    bad_input(Code::checkpoint_not_found,
              "{0}: its latest checkpoint, step {1}, is missing; restore it, or resume from step {2} with 'some train "
              "--resume {0} --from-step {2}'",
              folder, *latest, all.back().step);
  return all.back();
}

}  // namespace

std::unique_ptr<Trainer> Trainer::start(const Recipe& asked, const std::string& folder, TrainHooks hooks,
                                        const std::optional<FromOptions>& from) {
  const RunPaths paths{folder};
  Recipe recipe = asked;
  if (recipe.from && !from)
    bad_input(Code::from_mismatch,
              "{} belongs to a run initialized from {}; use --from too, or remove [from] from the file", recipe.name,
              recipe.from->text());
  const Group& group = hooks.group;
  check_same_command(group, &recipe, {"--out " + folder, from ? "--from " + from->run + " " + from->checkpoint : ""});
  check_rank_shares(group.size(), recipe);
  if (group.root()) {
    if (exists_path(folder) && !folder_exists(folder))
      bad_input(Code::path_exists, "{} {} is a file, not a folder", "--out", folder);
    refuse_a_second_run(paths);
  }
  if (from && group.root()) {
    const Source source = find_source(*from);
    std::string different;
    for (const std::string& one : check_source(recipe, source)) different += (different.empty() ? "" : ", ") + one;
    recipe.from = source.named;
    hooks.log.info(
        "initialized from the weights and keys of {}; {}{}", source.named.text(),
        different.empty() ? "all settings are equal" : "differing settings (there in brackets): ", different);
  }
  if (from) recipe.from = broadcast_recipe(group, recipe, paths.config()).from;
  for (const std::string& note : recipe.notes) hooks.log.info("{}", note);
  // Creates the context first: an unavailable device or precision is an error before anything is read or written.
  std::shared_ptr<Context> ctx = recipe_context(recipe.train, hooks.log, group, hooks.neighbours);
  group.all_or_none([&] { check_recipe(*ctx, recipe); });
  std::unique_ptr<RunLock> lock;
  if (group.root()) {
    lock = std::make_unique<RunLock>(folder);
    refuse_a_second_run(paths);  // checks again: another run may have ended in the folder meanwhile
    remove_leftovers(paths);
  }
  std::vector<TrainingStage> training_stages =
      prepare_stages(*ctx, recipe, from ? RunPaths{recipe.from->run}.tokenizer() : "", paths.cache(), hooks.prepare);
  check_same_machines(*ctx, training_stages);
  std::unique_ptr<Trainer> trainer(
      new Trainer(ctx, folder, std::move(lock), std::move(training_stages), std::move(hooks)));
  trainer->state_.recipe = recipe_settings(recipe);
  trainer->group().all_or_none([&] {
    if (!trainer->group().root()) return;
    trainer->tokenizer().save(paths.tokenizer());
    trainer->run_id_ = recipe.run_id = new_run_id(recipe, trainer->tokenizer(), trainer->text_hash());
    // Written last: a folder with a config.toml is a run.
    write_file_atomic(paths.config(), write_recipe(recipe));
    trainer->begin();
  });
  trainer->broadcast_state();
  return trainer;
}

std::unique_ptr<Trainer> Trainer::resume(const std::string& folder, const ResumeOptions& options, TrainHooks hooks) {
  const RunPaths paths{folder};
  const Group group = hooks.group;
  check_same_command(group, nullptr, options.changes);
  Recipe written, lasting, recipe;
  std::unique_ptr<RunLock> lock;
  std::optional<CheckpointName> checkpoint;
  if (group.root()) {
    const ResumeChanges changes = sort_changes(folder, read_run_recipe(folder), options.changes);
    lock = std::make_unique<RunLock>(folder);
    remove_leftovers(paths);
    checkpoint = choose_checkpoint(folder, options.from_step);
    written = read_run_recipe(folder);
    lasting = read_run_recipe(folder, changes.lasting);
    recipe = read_run_recipe(folder, changes.all);
  }
  recipe = broadcast_recipe(group, recipe, paths.config());
  check_rank_shares(group.size(), recipe);
  std::shared_ptr<Context> ctx = recipe_context(recipe.train, hooks.log, group, hooks.neighbours);
  // The existing tokenizer of the run: token ids must keep their meaning.
  std::vector<TrainingStage> training_stages =
      prepare_stages(*ctx, recipe, paths.tokenizer(), paths.cache(), hooks.prepare);
  check_same_machines(*ctx, training_stages);
  const TrainConfig before = group.root() ? stage_recipes(written).back().train : TrainConfig();
  if (group.root()) check_extended(training_stages.back(), before);
  std::unique_ptr<Trainer> trainer(
      new Trainer(ctx, folder, std::move(lock), std::move(training_stages), std::move(hooks)));
  trainer->state_.recipe = recipe_settings(lasting);
  trainer->run_id_ = written.run_id;
  group.all_or_none([&] {
    if (group.root() && checkpoint)
      trainer->load(*checkpoint, recipe_settings(written));
    else if (group.root())
      trainer->begin();
  });
  trainer->broadcast_state();
  group.all_or_none([&] {
    if (group.root() && recipe_settings(lasting) != recipe_settings(written)) trainer->change_recipe(lasting, before);
  });
  return trainer;
}

void Trainer::begin() {
  if (recipe().from) {
    state_.moments_before = load_source(find_source(*recipe().from), *model_);
    save_start_keys();
  }
  state_.data_hash = text_hash();
  save_run_data(paths_, use_of_texts(stages_));
  save_key_positions(paths_.folder, run_id_, 0, *model_);
  samples_.emplace(ctx_->log, paths_.samples(), 0, "");
  metrics_.emplace(ctx_->log, paths_, 0, std::nullopt);
  load_.emplace(paths_.load(), 0);
  if (!recipe().from) return;
  write_checkpoint();  // the other run may be deleted later
  saved_at_ = state_.step;
}

// Broadcasts what only rank 0 has read from the folder. If nothing was read there, all ranks have the same state
// anyway, except for what only rank 0 does.
void Trainer::broadcast_state() {
  if (group().alone()) return;
  nlohmann::json all;
  if (group().root()) {
    nlohmann::json steps = nlohmann::json::array();
    for (const Layer& layer : model_->layers()) steps.push_back(layer.keys.steps);
    all = {{"state", to_json(state_)},
           {"key_steps", steps},
           {"saved", saved_at_.has_value()},
           {"start_keys", start_keys_.size()}};
  }
  std::string text = all.dump();
  group().broadcast(text);
  if (!group().root()) {
    all = nlohmann::json::parse(text);
    state_ = train_state_from(all.at("state"), "the state that rank 0 sent");
    enter_stage();
    for (Layer& layer : model_->layers())
      layer.keys.steps = all.at("key_steps").at(static_cast<std::size_t>(layer.index)).get<std::int64_t>();
    if (all.at("saved").get<bool>()) saved_at_ = state_.step;
    start_keys_.clear();
    for (std::size_t i = 0; i < all.at("start_keys").get<std::size_t>(); ++i) {
      const Tensor& keys = model_->layers().at(i).keys.keys;
      start_keys_.push_back(Tensor::empty(keys.shape(), keys.dtype()));
    }
  }
  group().broadcast(learned_tensors(*model_));
  group().broadcast(start_keys_);
  model_->parameters().refresh_compute(*ctx_);
}

// Applies permanent settings of a resumed run: writes config.toml first, then a checkpoint with them. A kill between
// the two leaves a run that continues with the new settings.
void Trainer::change_recipe(const Recipe& lasting, const TrainConfig& before) {
  std::string changes;
  for (const std::string& one : recipe_differences(lasting, read_run_recipe(paths_.folder)))
    changes += (changes.empty() ? "" : ", ") + one;
  const std::string kept = rewrite_config(paths_, lasting, state_.step);
  ctx_->log.info("{}: {} from step {} on; the previous settings (in brackets) are kept in {}", paths_.config(), changes,
                 state_.step, kept);
  const bool in_last = state_.stage + 1 == static_cast<std::int64_t>(stages_.size());
  for (const std::string& line : explain_extension(stages_.back(), before, in_last ? state_.step_in_stage() : 0))
    ctx_->log.info("{}", line);
  if (saved_at_) write_checkpoint();  // otherwise there is no checkpoint yet
}

// Returns a hash of the training texts of all stages.
std::uint64_t Trainer::text_hash() const {
  std::uint64_t hash = stages_[0].train.hash();
  for (std::size_t i = 1; i < stages_.size(); ++i) {
    const std::uint64_t next = stages_[i].train.hash();
    hash = hash_bytes(&next, sizeof next, hash);
  }
  return hash;
}

void Trainer::load(const CheckpointName& checkpoint, const std::map<std::string, std::string>& written) {
  const TrainState now = state_;
  std::vector<CheckpointName> earlier, later;
  for (const CheckpointName& one : list_checkpoints(paths_.folder)) {
    if (one.step < checkpoint.step) earlier.push_back(one);
    if (one.step > checkpoint.step) later.push_back(one);
  }
  std::optional<std::string> kept;
  try {
    // A checkpoint contains the key state required by the rules of its stage.
    check_checkpoint(checkpoint, identity());
    state_ = train_state_from(read_checkpoint_state(checkpoint), checkpoint.folder);
    if (state_.stages != now.stages)
      bad_input(Code::run_mismatch,
                "{} was written by a run with {} stages, but {} has {}; restore the same [[stage]] tables",
                checkpoint.folder, state_.stages, paths_.config(), now.stages);
    enter_stage();
    load_checkpoint(checkpoint, identity(), *model_, true);
    kept = read_checkpoint_metrics(checkpoint);
    if (kept && !state_.metrics_checksum.empty() &&
        hex(checksum_of(kept->data(), kept->size())) != state_.metrics_checksum) {
      ctx_->log.warning(Code::metrics_damaged, "{}/metrics.jsonl is damaged; {} is unchanged", checkpoint.folder,
                        paths_.metrics());
      kept.reset();
    }
  } catch (const Error& error) {
    if (earlier.empty()) throw;
    throw error.within(fmt::to_string(earlier.back().step), error.what())
        .within(paths_.folder,
                fmt::format("{}; the checkpoint before it can be tried with 'some train --resume {} --from-step "
                            "{}'",
                            error.what(), paths_.folder, earlier.back().step));
  }
  if (state_.data_hash != text_hash()) {
    bad_input(Code::run_mismatch,
              "{}: the training text or tokenizer differs from that at the start of this run (hash {} then, {} now); "
              "restore the same data",
              paths_.folder, hex(state_.data_hash), hex(text_hash()));
  }
  compare_with_checkpoint(now, written);
  // A finished run that receives more steps or more patience is no longer finished.
  if (state_.finished && state_.step_in_stage() < training_stage().steps && ends_differ(state_.recipe, now.recipe)) {
    state_.finished = false;
    if (state_.stages > 0) state_.ends.pop_back();
  }
  if (recipe().from) {
    start_keys_ = load_key_positions(paths_.folder, run_id_, 0, *model_);
    if (start_keys_.empty() && recipe().model.ffn == Ffn::some)
      ctx_->log.warning(Code::start_keys_missing,
                        "{}/keys/step-0.safetensors not found: the movement of the keys is no longer measured",
                        paths_.folder);
  }
  state_.recipe = now.recipe;
  state_.computed_by = now.computed_by;
  // From here on the folder is in its state at the checkpoint; later lines and key positions will be written again with
  // the same content.
  for (const CheckpointName& one : later)
    ctx_->log.info("the checkpoint of step {} was renamed to {}", one.step, set_checkpoint_aside(one));
  if (!later.empty() || marked_latest(paths_.folder) != checkpoint.step) mark_latest(paths_.folder, checkpoint.step);
  // A kill may have come between a checkpoint and its marker, or before surplus checkpoints were removed.
  if (state_.best_step) mark_best(paths_.folder, *state_.best_step);
  remove_surplus();
  saved_at_ = state_.step;
  samples_.emplace(ctx_->log, paths_.samples(), state_.samples_bytes, state_.samples_checksum);
  metrics_.emplace(ctx_->log, paths_, state_.metrics_bytes, kept);
  load_.emplace(paths_.load(), state_.step);
  for (const CheckpointName& positions : list_key_positions(paths_.folder)) {
    if (positions.step > state_.step) fs::remove(positions.folder);
  }
}

// Warns about settings changed by hand or by another machine: the run continues with them, but is no longer identical
// to a run without the stop.
void Trainer::compare_with_checkpoint(const TrainState& now, const std::map<std::string, std::string>& written) const {
  std::string changes;
  for (const auto& [key, value] : written) {
    const auto then = state_.recipe.find(key);
    if (then == state_.recipe.end() || then->second == value) continue;
    changes += fmt::format("{}{} = {} (it was {})", changes.empty() ? "" : ", ", key, value, then->second);
  }
  if (!changes.empty())
    ctx_->log.warning(Code::run_settings_changed,
                      "{} was changed since step {}: {}; the run continues with the new settings", paths_.config(),
                      state_.step, changes);
  if (!state_.computed_by.empty() && state_.computed_by != now.computed_by)
    ctx_->log.warning(Code::computed_elsewhere,
                      "now computed by {}, previously by {} (up to step {}): the last bits may differ from those of an "
                      "uninterrupted run",
                      now.computed_by, state_.computed_by, state_.step);
}

void complete_finished_run(const std::string& folder) {
  const RunPaths paths{folder};
  const Recipe recipe = read_run_recipe(folder);
  const RunLock lock(folder);
  remove_leftovers(paths);
  const auto all = list_checkpoints(folder);
  if (all.empty()) return;
  const TrainState state = train_state_from(read_checkpoint_state(all.back()), all.back().folder);
  if (marked_latest(folder) != all.back().step) mark_latest(folder, all.back().step);
  if (state.best_step && marked_best(folder) != state.best_step) mark_best(folder, *state.best_step);
  remove_surplus_checkpoints(folder, recipe.train.keep_checkpoints, state);
}

TrainResult start_run(const Recipe& recipe, const std::string& folder, const TrainHooks& hooks,
                      const std::optional<FromOptions>& from) {
  TrainResult result = Trainer::start(recipe, folder, hooks, from)->run();
  build_requested_memory(result, folder, {}, hooks);
  return result;
}

TrainResult resume_run(const std::string& folder, const ResumeOptions& options, const TrainHooks& hooks) {
  TrainResult result = Trainer::resume(folder, options, hooks)->run();
  build_requested_memory(result, folder, options.changes, hooks);
  return result;
}

}  // namespace some
