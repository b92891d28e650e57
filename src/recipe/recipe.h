// Recipes: one TOML file a run (recipes/default.toml explains every key). Reading, dotted overrides, `base`, checks,
// and writing the resolved file back with every key commented.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/setting.h"
#include "data/token_data.h"
#include "memory/settings.h"
#include "model/config.h"
#include "runtime/machine.h"

namespace some {

enum class Schedule { cosine, constant };
enum class EvalAverage { tokens, batches };  // batches: the mean of batch means, as published

struct TrainConfig {  // [train]
  int epochs = 4;
  std::int64_t max_steps = 0;  // 0: as many as the epochs give
  int batch = 32;
  int accumulate = 1;
  double lr = 6e-4;
  std::int64_t warmup_steps = 0;
  Schedule schedule = Schedule::cosine;
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double clip = 1.0;
  std::int64_t eval_every = 0;        // steps; 0: only after each epoch
  std::int64_t measure_every = 50;    // steps between lines of cheap measures
  std::int64_t checkpoint_every = 0;  // steps; 0: after each epoch
  int keep_checkpoints = 2;
  std::int64_t save_keys_every = 0;  // steps; key positions saved for drawing their movement; 0: at each evaluation
  int patience = 0;                  // evaluations without improvement before stopping early; 0: never
  EvalAverage eval_average = EvalAverage::tokens;
  PrecisionChoice precision = PrecisionChoice::automatic;
  DeviceChoice device;
  int threads = 0;
  int expert_ranks = 1;  // ranks that hold the experts of each layer together
};

// What a published report says of this run: only compared, never used. In the file, [published] holds `source` and
// `note`, numbers of the whole run (total_parameters_m, trainable_parameters_m in millions as printed, steps;
// experts_used, best_gini, best_entropy, best_gini_mass, best_entropy_mass of the middle layer of the best checkpoint;
// gini_peak and entropy_low where only these were told; step_seconds as far as progress bars tell) and a list for each
// measure (train, val, ppl, gini, entropy, gini_mass, entropy_mass, dead, temperature), all of the same length.
// `epochs = [1, 4]` names the epochs the lists speak of, where only the first and the last were reported; without it
// they are 1, 2, 3, ... A number that was not reported is `nan` and left out of `values`. [published] and `title`
// belong to one file: they are not taken over from `base`.
struct PublishedEpoch {
  int epoch = 0;
  std::map<std::string, double> values;  // train, val, ppl, gini, entropy, gini_mass, entropy_mass, dead, ...
};
struct Published {
  std::string source;  // where it was reported, in words
  std::string note;
  std::map<std::string, double> values;  // total_parameters_m, trainable_parameters_m, ...
  std::vector<PublishedEpoch> epochs;
};

// A part of a run with text or settings of its own. In the file each is a table [[stage]] with a title and any keys but
// those that belong to the whole run: what weights, library and tokens are, seeds, the machine.
struct Stage {
  std::string title;
  std::vector<std::pair<std::string, SettingValue>> settings;  // by the full names of their keys
};

// The weights and keys a run began with, where they were another run's. Written as [from] by `some train --from`; a
// recipe cannot ask for it.
struct InitializedFrom {
  std::string run;         // its folder
  std::int64_t step = 0;   // of the checkpoint
  std::string hash;        // of the checkpoint's model.safetensors
  bool optimizer = false;  // with the moments of AdamW
  std::string text() const;
};

struct Recipe {
  std::string name;   // file name without ending
  std::string title;  // `title` key, or else the first comment line
  std::uint64_t seed = 0;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  MemorySettings memory{.slots = 0};  // [memory]: built from the training text when training ends; 0 slots: none
  std::optional<Published> published;
  std::vector<Stage> stages;            // one after the other, on top of the settings above; none: the run is one piece
  std::optional<InitializedFrom> from;  // of a run
};

// Reads a recipe, on top of the recipe its `base` names (relative to the file's folder), and applies overrides
// ("train.max_steps=100", which holds in every stage, or "stage.2.train.max_steps=100"). Unknown keys (naming the
// nearest known one), wrong types, values out of range and impossible combinations throw bad_input with file and line.
// `vocab` of the model is data.vocab until a tokenizer is at hand. A relative data path is taken as it stands (from the
// working folder), and, where nothing is there, from the recipe's folder.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides);
// The same for a file that a run wrote, which may have names of version 0.2 (core/old_names.h).
Recipe load_written_recipe(const std::string& path, const std::vector<std::string>& overrides);
Recipe parse_recipe(const std::string& text, const std::string& origin, const std::vector<std::string>& overrides);
// A recipe that is at hand with overrides applied; `origin` is what a combination that does not fit is put down to.
Recipe override_recipe(const Recipe& recipe, const std::string& origin, const std::vector<std::string>& overrides);
// The resolved recipe as TOML, every key with a comment (meaning, range, default).
std::string write_recipe(const Recipe& recipe);
// Every setting but the title as it stands in the file: "some.top_k" -> "4".
std::map<std::string, std::string> recipe_settings(const Recipe& recipe);
// The recipe of each stage, without stages of its own; the recipe itself where it has none.
std::vector<Recipe> stage_recipes(const Recipe& recipe);
// What a stage is called: its title, or "stage 2".
std::string stage_name(const Recipe& recipe, std::size_t stage);
// Only the settings that differ between two recipes: "some.top_k = 8 (4)".
std::vector<std::string> recipe_differences(const Recipe& recipe, const Recipe& base);

}  // namespace some
