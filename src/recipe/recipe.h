// Recipes: one TOML file per run (recipes/default.toml explains every key). Reads files with dotted overrides and
// `base`, checks them, and writes the resolved file with a comment on every key.
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

enum class RateSchedule { cosine, constant };
enum class EvalAverage { tokens, batches };  // batches: the mean of batch means, as published

struct TrainConfig {  // [train]
  int epochs = 4;
  std::int64_t max_steps = 0;  // 0: as given by epochs
  int batch = 32;
  int accumulate = 1;
  double lr = 6e-4;
  std::int64_t warmup_steps = 0;
  RateSchedule schedule = RateSchedule::cosine;
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double clip = 1.0;
  std::int64_t eval_every = 0;        // steps; 0: only after each epoch
  std::int64_t measure_every = 50;    // steps between metrics lines of cheap measures
  std::int64_t checkpoint_every = 0;  // steps; 0: after each epoch
  int keep_checkpoints = 2;
  std::int64_t save_keys_every = 0;  // steps between saved key positions, for plots of their movement; 0: at each
                                     // evaluation
  int patience = 0;                  // evaluations without improvement before stopping early; 0: never
  int samples = 0;                   // texts generated at each evaluation
  std::string sample_prompt = {};    // empty: the beginnings of validation documents
  std::int64_t sample_tokens = 40;
  EvalAverage eval_average = EvalAverage::tokens;
  PrecisionChoice precision = PrecisionChoice::automatic;
  DeviceChoice device;
  int threads = 0;
  int expert_ranks = 1;  // ranks that share the experts of each layer (expert parallelism)
};

// Numbers that a published report gives for this run; used for comparison only. In the file, [published] holds `source`
// and `note`, numbers of the whole run (total_parameters_m, trainable_parameters_m in millions as printed, steps;
// experts_used, best_gini, best_entropy, best_gini_mass, best_entropy_mass of the middle layer of the best checkpoint;
// gini_peak and entropy_low if only these were reported; step_seconds as read from progress bars) and a list per
// measure (train, val, ppl, gini, entropy, gini_mass, entropy_mass, dead, temperature), all of the same length. `epochs
// = [1, 4]` names the epochs of the lists if only the first and the last were reported; without it they are 1, 2, 3,
// ... A number that was not reported is `nan` and missing in `values`. [published] and `title` are not inherited from
// `base`.
struct PublishedEpoch {
  int epoch = 0;
  std::map<std::string, double> values;  // train, val, ppl, gini, entropy, gini_mass, entropy_mass, dead, ...
};
struct Published {
  std::string source;  // where it was reported, as text
  std::string note;
  std::map<std::string, double> values;  // total_parameters_m, trainable_parameters_m, ...
  std::vector<PublishedEpoch> epochs;
};

// A part of a run with its own text or settings. In the file each stage is a table [[stage]] with a title and any keys
// except those of the whole run: model, library, tokens, seeds and machine.
struct Stage {
  std::string title;
  std::vector<std::pair<std::string, SettingValue>> settings;  // by full key name
};

// The run whose weights and keys initialized this run. Written as [from] by `some train --from`; a recipe cannot set
// it.
struct InitializedFrom {
  std::string run;         // its run folder
  std::int64_t step = 0;   // step of the checkpoint
  std::string hash;        // hash of the checkpoint's model.safetensors
  bool optimizer = false;  // true if AdamW's moments were loaded too
  std::string text() const;
};

struct Recipe {
  std::string name;   // file name without ending
  std::string title;  // `title` key, or else the first comment line
  std::uint64_t seed = 0;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  MemorySettings memory{.slots = 0};  // [memory]: built from the training text after training; 0 slots: none
  std::optional<Published> published;
  std::vector<Stage> stages;            // in order, each on top of the settings above; empty: a run without stages
  std::optional<InitializedFrom> from;  // set for runs started from another run
  std::string run_id;                   // hash in every file of its checkpoints (runs/identity.h); set for a run
  std::vector<std::string> notes;       // adjustments made while reading, for the log; not part of the recipe
};

// Reads a recipe on top of the recipe named by `base` (relative to the file's folder) and applies overrides
// ("train.max_steps=100", which applies to every stage, or "stage.2.train.max_steps=100"). Unknown keys (with the
// nearest known one), wrong types, values out of range and impossible combinations throw bad_input with file and line.
// The model's `vocab` is data.vocab until a tokenizer is loaded. A relative data path is first resolved from the
// working folder, then from the recipe's folder.
//
// Two settings are adjusted, and listed in `notes`, if another place (file or override) changes what they were chosen
// for: data.train_documents of built-in text becomes 0 for another text, and a warm-up longer than train.max_steps
// becomes a tenth of it.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides);
// The same for a file written by a run, which may have names of version 0.2 (core/old_names.h). A warm-up is not
// adjusted.
Recipe load_written_recipe(const std::string& path, const std::vector<std::string>& overrides);
Recipe parse_recipe(const std::string& text, const std::string& origin, const std::vector<std::string>& overrides);
// Applies overrides to a recipe that was already read; `origin` is named in messages about invalid combinations.
Recipe override_recipe(const Recipe& recipe, const std::string& origin, const std::vector<std::string>& overrides);
// Returns the resolved recipe as TOML, each key with a comment (meaning, range, default).
std::string write_recipe(const Recipe& recipe);
// Returns every setting but the title, as written in the file: "some.top_k" -> "4".
std::map<std::string, std::string> recipe_settings(const Recipe& recipe);
// Returns one recipe per stage, without stages of their own; only the recipe itself if it has no stages.
std::vector<Recipe> stage_recipes(const Recipe& recipe);
// Returns the name of a stage: its title, or "stage 2".
std::string stage_name(const Recipe& recipe, std::size_t stage);
// Returns only the settings that differ between two recipes: "some.top_k = 8 (4)".
std::vector<std::string> recipe_differences(const Recipe& recipe, const Recipe& base);

}  // namespace some
