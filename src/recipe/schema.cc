#include "recipe/schema.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "core/error.h"
#include "recipe/toml.h"
#include "runtime/machine.h"

namespace some {

namespace {

#define FIELD(place) \
  [](auto& recipe) -> auto& { return recipe.place; }

void add_top(SettingList<Recipe>& list) {
  list.table = "";
  list.role = SettingRole::run;
  list.text("title", FIELD(title), "Title of the run, in one line.");
  list.integer("seed", FIELD(seed), 0, unlimited,
               "Seed of every random choice except the expert library: initial weights, keys, data order.");
}

void add_data(SettingList<Recipe>& list) {
  list.table = "data";
  list.role = SettingRole::training_stage;
  list.text("train", FIELD(data.train),
            "Training text: a file, a folder, or \"builtin:DOMAIN\". Relative paths are resolved from the working "
            "folder, then from the folder of the recipe.");
  list.text("valid", FIELD(data.valid), "Validation text, as in `train`; empty = valid_share of the training text.");
  list.text("separator", FIELD(data.separator),
            "Line between two documents of a plain-text file; empty = one document per file.");
  list.text("field", FIELD(data.field), "Field that holds the text in JSON lines; empty = text.");
  list.choice("unit", FIELD(data.unit), {"document", "line", "paragraph"},
              "Unit of a document: the text between separators, or each line or paragraph of it.");
  list.choice(
      "long", FIELD(data.long_documents), {"split", "cut"},
      "Documents longer than seq_len: split into consecutive sequences, or cut after the first (as published).");
  list.integer("train_documents", FIELD(data.train_documents), 0, unlimited,
               "Maximum number of training documents, from the first; 0 = all.");
  list.integer("valid_documents", FIELD(data.valid_documents), 0, unlimited,
               "Maximum number of validation documents, from the first; 0 = all.");
  list.number("valid_share", FIELD(data.valid_share), 0, 1,
              "Fraction of the training documents held out for validation if `valid` is empty; with too few documents, "
              "the end of each.")
      .below_high = true;
  list.role = SettingRole::tokens;
  list.text("tokenizer", FIELD(data.tokenizer),
            "\"bytelevel\" or \"whitespace\" (trained on the training text; the published runs used whitespace), or "
            "the path of a tokenizer.json.");
  list.integer("vocab", FIELD(data.vocab), 4, 1048576, "Size of the vocabulary to train.");
  list.role = SettingRole::training_stage;
  list.boolean("count_pads", FIELD(data.count_pads),
               "Fills rows with padding that is predicted, routed and counted like text, as in the runs up to v4.");
  list.boolean("eos", FIELD(data.eos), "Ends each document with [EOS]; the first prototypes did not.");
}

void add_train(SettingList<Recipe>& list) {
  list.table = "train";
  list.role = SettingRole::length;
  list.integer("epochs", FIELD(train.epochs), 1, 1e9, "Passes over the training text.");
  list.integer("max_steps", FIELD(train.max_steps), 0, unlimited,
               "Maximum number of steps; the learning-rate schedule ends there too; 0 = set by the epochs.")
      .in_steps = true;
  list.role = SettingRole::training_stage;
  list.integer("batch", FIELD(train.batch), 1, 1048576, "Sequences per forward pass (micro-batch size).");
  list.integer("accumulate", FIELD(train.accumulate), 1, 1048576,
               "Micro-batches per step (gradient accumulation), shared by the ranks (docs/scale.md).");
  list.number("lr", FIELD(train.lr), 0, unlimited, "Peak learning rate.").above_low = true;
  list.integer("warmup_steps", FIELD(train.warmup_steps), 0, unlimited, "Steps of linear learning-rate warmup.")
      .in_steps = true;
  list.choice("schedule", FIELD(train.schedule), {"cosine", "constant"},
              "Learning rate after the warmup: cosine decay to 0, or constant.");
  list.number("weight_decay", FIELD(train.weight_decay), 0, unlimited,
              "Weight decay of AdamW, on every trained parameter.");
  Setting<Recipe>& betas = list.add("betas", SettingKind::numbers, "Beta 1 and beta 2 of AdamW.");
  betas.low = 0;
  betas.high = 1;
  betas.below_high = true;
  betas.lengths = {2};
  betas.get = [](const Recipe& recipe) {
    return SettingValue(std::vector<double>{recipe.train.beta1, recipe.train.beta2});
  };
  betas.set = [](Recipe& recipe, const SettingValue& value) {
    recipe.train.beta1 = std::get<std::vector<double>>(value)[0];
    recipe.train.beta2 = std::get<std::vector<double>>(value)[1];
  };
  list.number("eps", FIELD(train.eps), 0, 1, "Epsilon of AdamW.").above_low = true;
  list.number("clip", FIELD(train.clip), 0, unlimited, "Gradient-norm clipping threshold; 0 = off.");
  list.role = SettingRole::habit;
  list.integer(
          "eval_every", FIELD(train.eval_every), -1000, unlimited,
          "Steps between evaluations; 0 = after each epoch only; -N = N evaluations at equal distances, at least 25 "
          "steps apart.")
      .in_steps = true;
  list.integer("measure_every", FIELD(train.measure_every), 1, unlimited, "Steps between logged training metrics.")
      .in_steps = true;
  list.integer("checkpoint_every", FIELD(train.checkpoint_every), 0, unlimited,
               "Steps between checkpoints; 0 = after each epoch only.")
      .in_steps = true;
  list.integer("keep_checkpoints", FIELD(train.keep_checkpoints), 1, 1e6,
               "Number of checkpoints kept; older ones are removed.");
  list.integer("save_keys_every", FIELD(train.save_keys_every), 0, unlimited,
               "Steps between snapshots of the keys; 0 = at each evaluation.")
      .in_steps = true;
  list.integer("patience", FIELD(train.patience), 0, 1e6,
               "Early stopping: evaluations without improvement before the run stops; 0 = off.");
  list.integer("samples", FIELD(train.samples), 0, 1000,
               "Texts that are generated at each evaluation, shown, and written to samples.jsonl; 0 = none.");
  list.text("sample_prompt", FIELD(train.sample_prompt),
            "Beginning of these texts; empty = the first words of validation documents, another one per text.");
  list.integer("sample_tokens", FIELD(train.sample_tokens), 1, 1048576, "Maximum number of new tokens of such a text.");
  list.role = SettingRole::training_stage;
  list.choice("eval_average", FIELD(train.eval_average), {"tokens", "batches"},
              "Validation loss as a mean over tokens, or over batches (as published).");
  list.role = SettingRole::machine;
  list.choice("precision", FIELD(train.precision), precision_choices(),
              "Precision of the computation; auto = bf16 on a GPU, fp32 on a CPU, where bf16 applies to GEMMs only.");
  Setting<Recipe>& device = list.add("device", SettingKind::choice,
                                     "Device; auto = the first GPU if there is one; cuda:N = GPU number N, from 0.");
  device.choices = {"auto", "cpu", "cuda", "cuda:N"};
  device.accepts = [](const std::string& name) { return parse_device_choice(name).has_value(); };
  device.get = [](const Recipe& recipe) { return SettingValue(text_of(recipe.train.device)); };
  device.set = [](Recipe& recipe, const SettingValue& value) {
    recipe.train.device = device_choice(std::get<std::string>(value));
  };
  list.integer("threads", FIELD(train.threads), 0, 4096, "CPU threads; 0 = one per CPU available to the process.");
  list.integer("expert_ranks", FIELD(train.expert_ranks), 1, 65536,
               "Ranks that share the experts of each layer (expert parallelism, docs/scale.md).");
}

#undef FIELD

std::size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= left.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= right.size(); ++j) {
      const std::size_t change = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[right.size()];
}

}  // namespace

const std::vector<RecipeKey>& recipe_keys() {
  static const std::vector<RecipeKey> keys = [] {
    SettingList<Recipe> list;
    add_top(list);
    list.include(
        model_settings(), [](auto& recipe) -> auto& { return recipe.model; });
    add_data(list);
    add_train(list);
    list.table = "memory";
    list.include(
        memory_settings(), [](auto& recipe) -> auto& { return recipe.memory; });
    return std::vector<RecipeKey>(list.list.begin(), list.list.end());
  }();
  return keys;
}

const RecipeKey* find_recipe_key(std::string_view full_name) {
  static const auto by_name = [] {
    std::map<std::string, const RecipeKey*, std::less<>> out;
    for (const RecipeKey& key : recipe_keys()) out.emplace(key.full_name(), &key);
    return out;
  }();
  const auto found = by_name.find(full_name);
  return found == by_name.end() ? nullptr : found->second;
}

bool is_machine_setting(std::string_view assignment) {
  const RecipeKey* key = find_recipe_key(assignment.substr(0, assignment.find_first_of(" =")));
  return key != nullptr && key->role == SettingRole::machine;
}

bool is_left_out_of_comparisons(std::string_view assignment) {
  const std::string_view name = assignment.substr(0, assignment.find_first_of(" ="));
  return name == "train.keep_checkpoints" || (name != "train.precision" && is_machine_setting(name));
}

const std::vector<RecipeTable>& recipe_tables() {
  static const std::vector<RecipeTable> tables = {
      {"", ""},
      {"model", "The transformer."},
      {"some", "Experts, routing and the rules that move the keys. Unused where model.ffn is not \"some\"."},
      {"data", "The text and its tokens."},
      {"train", "The run."},
      {"memory", "Online memory, learned during use without gradients: slots with a key and tokens."},
  };
  return tables;
}

const std::vector<SettingInfo>& stage_keys() {
  static const std::vector<SettingInfo> keys = [] {
    SettingInfo title;
    title.table = "stage";
    title.name = "title";
    title.kind = SettingKind::text;
    title.meaning = "Title of the stage in messages, metrics and tables.";
    std::string kept;
    for (const RecipeKey& key : recipe_keys()) {
      const bool own =
          key.role == SettingRole::training_stage || key.role == SettingRole::length || key.role == SettingRole::habit;
      if (!own && key.role != SettingRole::run && key.role != SettingRole::machine)
        kept += (kept.empty() ? "" : ", ") + key.full_name();
    }
    SettingInfo any;
    any.table = "stage";
    any.name = "KEY";
    any.kind = SettingKind::text;
    any.meaning =
        "Any key of the tables above, such as data.train or train.lr, for this stage only. Not allowed: title, seed, "
        "settings of the machine (device, precision, threads, expert_ranks), and settings that determine weights, "
        "library and tokens (" +
        kept +
        "). The tokenizer is trained once, on the texts of all stages. On the command line: stage.1.train.lr=0.001; a "
        "key without a stage applies to every stage.";
    return std::vector<SettingInfo>{title, any};
  }();
  return keys;
}

const std::vector<std::string>& published_scalars() {
  static const std::vector<std::string> names = {
      "total_parameters_m", "trainable_parameters_m", "steps",     "experts_used", "best_gini",   "best_entropy",
      "best_gini_mass",     "best_entropy_mass",      "gini_peak", "entropy_low",  "step_seconds"};
  return names;
}

const std::vector<std::string>& published_columns() {
  static const std::vector<std::string> names = {"train",     "val",          "ppl",  "gini",       "entropy",
                                                 "gini_mass", "entropy_mass", "dead", "temperature"};
  return names;
}

AnnealShape anneal_shape(const std::string& name) {
  const auto& shapes = anneal_shapes();
  return static_cast<AnnealShape>(std::find(shapes.begin(), shapes.end(), name) - shapes.begin());
}

std::string RecipeKey::write(const SettingValue& value) const {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* number = std::get_if<double>(&value)) return toml_number(*number);
  if (const auto* anneal = std::get_if<Anneal>(&value)) {
    return fmt::format("{{shape = \"{}\", start = {}, end = {}}}",
                       anneal_shapes().at(static_cast<std::size_t>(anneal->shape)), toml_number(anneal->start),
                       toml_number(anneal->end));
  }
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    std::string text;
    for (const double item : *numbers) {
      text +=
          (text.empty() ? "" : ", ") + (kind == SettingKind::integers ? fmt::format("{}", item) : toml_number(item));
    }
    return "[" + text + "]";
  }
  return toml_quote(std::get<std::string>(value));
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t smallest = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < smallest) {
      smallest = distance;
      best = candidate;
    }
  }
  return best;
}

std::string misspelled_name(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(name, candidates);
  return edit_distance(name, nearest) <= (name.size() + 2) / 3 ? nearest : "";
}

}  // namespace some
