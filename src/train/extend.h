// Settings given to a run that is resumed: which it may take, and what a longer run means for its schedule.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "recipe/recipe.h"
#include "runs/run.h"
#include "train/stage.h"

namespace some {

struct ResumeChanges {
  std::vector<std::string> lasting;  // kept from now on; a length is that of the last stage, where the run has stages
  std::vector<std::string> all;      // these, and those of the machine, which hold for one session
};
// bad_input, with what would be right, for settings that a run keeps as they are.
ResumeChanges sort_changes(const std::string& folder, const Recipe& written, const std::vector<std::string>& changes);
// bad_input where the last course does not become longer although its length was changed.
void check_longer(const TrainingStage& last, const TrainConfig& before);
// Whether a setting that decides when a run ends differs, of two as recipe_settings gives them.
bool ends_differ(const std::map<std::string, std::string>& then, const std::map<std::string, std::string>& now);
// The new config.toml; the old one is kept beside it. Returns the name it is kept under.
std::string rewrite_config(const RunPaths& paths, const Recipe& recipe, std::int64_t step);
// In words: what becomes longer, and where the learning rate goes. `step`: steps made of the last course; negative:
// it has not begun.
std::vector<std::string> explain_longer(const TrainingStage& last, const TrainConfig& before, std::int64_t step);

}  // namespace some
