#include "train/extend.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "recipe/schedule.h"
#include "recipe/schema.h"

namespace some {
namespace {

std::string key_of(const std::string& change) { return change.substr(0, change.find('=')); }

// "stage.2.train.lr" -> "train.lr".
std::string without_stage(const std::string& name) {
  if (!name.starts_with("stage.")) return name;
  const std::size_t dot = name.find('.', 6);
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

[[noreturn]] void refuse(const std::string& folder, const std::string& change, SettingRole role) {
  if (role == SettingRole::model || role == SettingRole::tokens)
    bad_input(Code::resume_refused,
              "{}: determines the weights or tokens of {}, so it cannot change when resuming; start a new run", change,
              folder);
  bad_input(Code::resume_refused,
            "{0}: a resumed run keeps this setting (only length, logging and machine settings may change); to change "
            "it, start a new run from these weights: some train --from {1} {0} --out NEW",
            change, folder);
}

bool decides_the_end(const std::string& name) {
  const std::string key = without_stage(name);
  const RecipeKey* known = find_recipe_key(key);
  return known != nullptr && (known->role == SettingRole::length || key == "train.patience");
}

}  // namespace

ResumeChanges sort_changes(const std::string& folder, const Recipe& written, const std::vector<std::string>& changes) {
  read_run_recipe(folder, changes);  // throws if a setting is invalid by itself
  ResumeChanges out;
  std::vector<std::string> machine;
  for (const std::string& change : changes) {
    const std::string name = key_of(change);
    const SettingRole role = find_recipe_key(without_stage(name))->role;
    if (role == SettingRole::machine) {
      machine.push_back(change);
      continue;
    }
    const std::size_t last = written.stages.size();
    const bool of_last = name.starts_with(fmt::format("stage.{}.", last));
    if (role != SettingRole::length && role != SettingRole::habit) refuse(folder, change, role);
    if (name.starts_with("stage.") && !of_last)
      bad_input(Code::resume_refused,
                "{}: only the last stage of {} can become longer; a new run can have other stages: some train RECIPE "
                "--from {} --out NEW",
                change, folder, folder);
    const bool of_stage = last > 0 && !of_last && role == SettingRole::length;
    out.lasting.push_back(of_stage ? fmt::format("stage.{}.{}", last, change) : change);
  }
  out.all = out.lasting;
  out.all.insert(out.all.end(), machine.begin(), machine.end());
  return out;
}

void check_extended(const TrainingStage& last, const TrainConfig& before) {
  const TrainConfig& now = last.recipe.train;
  if (now.epochs == before.epochs && now.max_steps == before.max_steps) return;
  const std::int64_t then = last.steps_for(before);
  if (last.steps > then) return;
  if (last.steps < then)
    bad_input(Code::resume_refused,
              "{} = {}, train.max_steps = {}: {} steps instead of {}; a resumed run can only be extended (stop it at "
              "any time with Ctrl-C and use its checkpoints)",
              "train.epochs", now.epochs, now.max_steps, last.steps, then);
  bad_input(Code::resume_refused, "the run does not become longer: it still ends after {} steps, because of {}", then,
            now.max_steps > 0 && now.max_steps == then
                ? fmt::format("train.max_steps = {}; raise it too", now.max_steps)
                : fmt::format("train.epochs = {} ({} steps each); raise it too", now.epochs, last.steps_per_epoch));
}

bool ends_differ(const std::map<std::string, std::string>& then, const std::map<std::string, std::string>& now) {
  // A stage's own length may be new; older checkpoints contain no settings.
  if (then.empty()) return false;
  return std::any_of(now.begin(), now.end(), [&](const auto& setting) {
    const auto before = then.find(setting.first);
    return decides_the_end(setting.first) && (before == then.end() || before->second != setting.second);
  });
}

std::string rewrite_config(const RunPaths& paths, const Recipe& recipe, std::int64_t step) {
  const std::string before = read_file(paths.config());
  std::string kept = fmt::format("config-until-step-{}.toml", step);
  // Equal contents come from an extension that was interrupted after this file was written.
  const auto other = [&] {
    const std::string path = paths.folder + "/" + kept;
    return exists_path(path) && read_file(path) != before;
  };
  for (int i = 2; other(); ++i) kept = fmt::format("config-until-step-{}-{}.toml", step, i);
  write_file_atomic(paths.folder + "/" + kept, before);
  write_file_atomic(paths.config(), write_recipe(recipe));
  return kept;
}

std::vector<std::string> explain_extension(const TrainingStage& last, const TrainConfig& before, std::int64_t step) {
  const Recipe& recipe = last.recipe;
  const std::int64_t then = last.steps_for(before);
  std::vector<std::string> out;
  if (last.steps == then) return out;
  out.push_back(fmt::format("{} is extended: {} steps instead of {}",
                            last.title.empty() ? "the run" : "the stage " + last.title, last.steps, then));
  if (step <= 0) return out;
  std::string rate;
  if (recipe.train.schedule == RateSchedule::constant) {
    rate = fmt::format("the learning rate stays {:.2g}", learning_rate(recipe.train, step, last.steps));
  } else {
    const double was = learning_rate(recipe.train, step - 1, then), is = learning_rate(recipe.train, step, last.steps);
    rate = fmt::format(
        "the learning rate changes from {:.2g} (cosine over {} steps) {} to {:.2g} (cosine over {} steps), then decays "
        "to 0: {}",
        was, then, is > was ? "up" : "on", is, last.steps,
        is > 2 * was ? "the loss will rise at first; the result differs from that of a single run of this length"
                     : "close to a single run of this length");
  }
  const ModelConfig& model = recipe.model;
  if (model.topk_warmup > 0 || model.train_temp_end >= 0 || model.keys.beta_anneal != Anneal() ||
      model.keys.balance_anneal != Anneal())
    rate +=
        "; settings that are fractions of the run (topk_warmup, train_temp_end, beta_anneal, balance_anneal) now refer "
        "to the longer run";
  out.push_back(rate);
  return out;
}

}  // namespace some
