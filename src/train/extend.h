// Checks settings changed when a run is resumed, and explains what a longer run means for its schedule.
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
  std::vector<std::string> lasting;  // kept from now on; changed lengths apply to the last stage if the run has stages
  std::vector<std::string> all;      // these and the machine's settings, which apply to one session
};
// Splits the changes. Throws bad_input, with the allowed change, for settings that a run must keep.
ResumeChanges sort_changes(const std::string& folder, const Recipe& written, const std::vector<std::string>& changes);
// Throws bad_input if a changed length does not make the last stage longer.
void check_extended(const TrainingStage& last, const TrainConfig& before);
// True if a setting that decides when a run ends differs between two results of recipe_settings.
bool ends_differ(const std::map<std::string, std::string>& then, const std::map<std::string, std::string>& now);
// Writes the new config.toml and keeps the old one in the same folder. Returns the name of the old file.
std::string rewrite_config(const RunPaths& paths, const Recipe& recipe, std::int64_t step);
// Returns messages: what becomes longer, and how the learning rate continues. `step`: steps of the last stage so far;
// negative: it has not begun.
std::vector<std::string> explain_extension(const TrainingStage& last, const TrainConfig& before, std::int64_t step);

}  // namespace some
