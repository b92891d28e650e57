#include "train/recipe_schema.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "base/device.h"
#include "base/error.h"
#include "train/recipe_toml.h"

namespace some::train {

namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

// An accessor is a generic lambda `[](auto& recipe) -> auto& { return recipe.model.layers; }`, so one lambda reads and
// writes.
template <typename Access>
using Field = std::remove_reference_t<std::invoke_result_t<Access, Recipe&>>;

struct Builder {
  std::vector<RecipeKey> keys;
  std::string table;

  RecipeKey& add(const char* name, SettingKind kind, const char* meaning) {
    keys.push_back(RecipeKey{});
    RecipeKey& key = keys.back();
    key.table = table;
    key.name = name;
    key.kind = kind;
    key.meaning = meaning;
    return key;
  }

  template <typename Access>
  void boolean(const char* name, Access access, const char* meaning) {
    RecipeKey& key = add(name, SettingKind::boolean, meaning);
    key.get = [access](const Recipe& recipe) { return Setting(static_cast<bool>(access(recipe))); };
    key.set = [access](Recipe& recipe, const Setting& value) { access(recipe) = std::get<bool>(value); };
  }

  template <typename Access>
  void integer(const char* name, Access access, double low, double high, const char* meaning) {
    RecipeKey& key = add(name, SettingKind::integer, meaning);
    key.low = low;
    key.high = high;
    // Values a narrow field cannot hold are out of range, not cut off.
    if constexpr (sizeof(Field<Access>) == 4) key.high = std::min(high, 2147483647.0);
    key.get = [access](const Recipe& recipe) { return Setting(static_cast<std::int64_t>(access(recipe))); };
    key.set = [access](Recipe& recipe, const Setting& value) {
      access(recipe) = static_cast<Field<Access>>(std::get<std::int64_t>(value));
    };
  }

  template <typename Access>
  RecipeKey& number(const char* name, Access access, double low, double high, const char* meaning) {
    RecipeKey& key = add(name, SettingKind::number, meaning);
    key.low = low;
    key.high = high;
    key.get = [access](const Recipe& recipe) { return Setting(access(recipe)); };
    key.set = [access](Recipe& recipe, const Setting& value) { access(recipe) = std::get<double>(value); };
    return key;
  }

  template <typename Access>
  void text(const char* name, Access access, const char* meaning) {
    RecipeKey& key = add(name, SettingKind::text, meaning);
    key.get = [access](const Recipe& recipe) { return Setting(access(recipe)); };
    key.set = [access](Recipe& recipe, const Setting& value) { access(recipe) = std::get<std::string>(value); };
  }

  // Choices of an enum, in the order of its values, or of a text.
  template <typename Access>
  RecipeKey& choice(const char* name, Access access, std::vector<std::string> choices, const char* meaning) {
    RecipeKey& key = add(name, SettingKind::choice, meaning);
    key.choices = choices;
    if constexpr (std::is_enum_v<Field<Access>>) {
      key.get = [access, choices](const Recipe& recipe) {
        return Setting(choices.at(static_cast<std::size_t>(access(recipe))));
      };
      key.set = [access, choices](Recipe& recipe, const Setting& value) {
        const auto place = std::find(choices.begin(), choices.end(), std::get<std::string>(value));
        access(recipe) = static_cast<Field<Access>>(place - choices.begin());
      };
    } else {
      key.get = [access](const Recipe& recipe) { return Setting(access(recipe)); };
      key.set = [access](Recipe& recipe, const Setting& value) { access(recipe) = std::get<std::string>(value); };
    }
    return key;
  }
};

#define FIELD(place) \
  [](auto& recipe) -> auto& { return recipe.place; }

void add_top(Builder& builder) {
  builder.table = "";
  builder.text("title", FIELD(title), "One line on what this run is.");
  builder.integer("seed", FIELD(seed), 0, unlimited,
                  "Seed of every random choice of the run but the experts: initial weights, keys, order of the data.");
}

void add_model(Builder& builder) {
  builder.table = "model";
  builder.integer("d_model", FIELD(model.d_model), 1, 65536, "Width of the model; even, and a multiple of heads.");
  builder.integer("layers", FIELD(model.layers), 1, 4096, "Transformer blocks.");
  builder.integer("heads", FIELD(model.heads), 1, 65536, "Attention heads.");
  builder.integer("seq_len", FIELD(model.seq_len), 2, 1048576,
                  "Longest sequence, in tokens; data.long says what becomes of longer documents.");
  builder.choice("norm", FIELD(model.norm), {"post", "pre"},
                 "Layer norm after the residual sum (post, as published) or on the way into each block (pre).");
  builder.choice("position", FIELD(model.position), {"sinusoidal", "rope"},
                 "Positions added to the embedding (sinusoidal), or queries and keys of attention turned (rope).");
  builder.choice("ffn", FIELD(model.ffn), {"some", "dense", "none"},
                 "Feed-forward block: frozen experts (some), an ordinary trained one (dense), or left out (none).");
  builder
      .number("dense_mult", FIELD(model.dense_mult), 0, 1024,
              "Hidden width of the dense block, as a multiple of d_model.")
      .above_low = true;
  builder.boolean(
      "causal", FIELD(model.causal),
      "Tokens see only what is before them. false replays the first prototype; such a model cannot generate.");
}

void add_some(Builder& builder) {
  builder.table = "some";
  builder.integer("experts", FIELD(model.experts), 1, 1048576, "Experts in each layer.");
  builder.integer("d_ffn", FIELD(model.d_ffn), 1, 1048576, "Hidden width of an expert.");
  builder.integer("top_k", FIELD(model.top_k), 1, 4096, "Experts that process a token; at most `experts`.");
  builder.choice("init", FIELD(model.init), {"default", "orthogonal", "sparse"}, "How the expert library is drawn.");
  builder.integer("library_seed", FIELD(model.library_seed), 0, unlimited,
                  "Seed of the expert library; the same number gives the same experts in every run.");
  builder.choice("training", FIELD(model.training), {"frozen", "lora", "full"},
                 "Experts stay as drawn (frozen), learn a low-rank correction (lora), or learn entirely (full).");
  builder.integer("lora_rank", FIELD(model.lora_rank), 1, 4096, "Rank of the correction with training = \"lora\".");
  builder.choice("router", FIELD(model.router), {"linear", "mlp"},
                 "The query network: one linear layer, or two with GELU between.");
  builder
      .number("router_mult", FIELD(model.router_mult), 0, 64,
              "Hidden width of the mlp router, as a multiple of d_model.")
      .above_low = true;
  builder.choice("router_init", FIELD(model.router_init), {"uniform", "normal"},
                 "Initial router weights: uniform within 1/sqrt(inputs), or normal with deviation 0.02 and no bias.");
  builder.integer("query_dim", FIELD(model.query_dim), 0, 65536, "Numbers in a query and in a key; 0: d_model.");
  builder.choice("routing", FIELD(model.routing), {"keys", "random"},
                 "Experts chosen by the nearest keys, or by a fixed hash of the token (a control).");
  builder.number("ground", FIELD(model.ground), 0, unlimited,
                 "Share of the query of the layer below that is added to a layer's query (study D3).");
  builder.boolean("readin", FIELD(model.readin),
                  "A trained map before the experts, which the router does not see; the identity at first.");
  builder.choice("readout", FIELD(model.readout), {"none", "linear", "features"},
                 "A trained map after the experts' sum (linear), or in place of their second matrices (features).");
  builder.choice("temperature", FIELD(model.temperature), {"fixed", "learned"},
                 "Temperature of the gates: given below, or one learnt number a layer.");
  builder.number("train_temp", FIELD(model.train_temp), 0, unlimited, "Temperature of the gates in training.")
      .above_low = true;
  builder.number("train_temp_end", FIELD(model.train_temp_end), -1, unlimited,
                 "In epoch e of n (from 0) the training temperature is train_temp + (train_temp_end - train_temp)*e/n; "
                 "negative: it stays.");
  builder
      .number("eval_temp", FIELD(model.eval_temp), 0, unlimited,
              "Temperature of the gates in evaluation and generation.")
      .above_low = true;

  builder.number("alpha", FIELD(model.keys.alpha), 0, unlimited, "Attraction of a key by the queries that chose it.");
  builder.number("beta", FIELD(model.keys.beta), 0, unlimited, "Pull between the keys of experts chosen together.");
  builder.number("delta", FIELD(model.keys.delta), 0, 1,
                 "Share by which keys of little-used experts shrink in each step.");
  builder.boolean("use_alpha", FIELD(model.keys.use_alpha), "Whether attraction acts at all.");
  builder.boolean("use_beta", FIELD(model.keys.use_beta), "Whether the pull between keys acts at all.");
  builder.boolean("use_delta", FIELD(model.keys.use_delta), "Whether decay acts at all.");
  builder.number("alpha_floor", FIELD(model.keys.alpha_floor), 0, unlimited,
                 "Attraction never falls below this, however often the expert was used.");
  builder.choice("beta_inertia", FIELD(model.keys.beta_inertia), {"min", "max"},
                 "Which of two experts' usage slows their pull: the smaller or the larger.");
  RecipeKey& anneal =
      builder.add("beta_anneal", SettingKind::anneal,
                  "Factor on beta over the run, from `start` to `end`; shape \"none\" leaves beta as it is.");
  anneal.get = [](const Recipe& recipe) { return Setting(recipe.model.keys.beta_anneal); };
  anneal.set = [](Recipe& recipe, const Setting& value) {
    recipe.model.keys.beta_anneal = std::get<BetaAnneal>(value);
  };
  RecipeKey& scale =
      builder.add("beta_layer_scale", SettingKind::layer_scale,
                  "Factor on beta, one a layer (study D1); one number holds for all layers, [] means 1.");
  scale.low = 0;
  scale.get = [](const Recipe& recipe) { return Setting(recipe.model.keys.beta_layer_scale); };
  scale.set = [](Recipe& recipe, const Setting& value) {
    recipe.model.keys.beta_layer_scale = std::get<std::vector<double>>(value);
  };
  builder.number("clip_delta", FIELD(model.keys.clip_delta), 0, unlimited,
                 "Longest way a key may move in one update; 0: no limit.");
  builder.choice(
      "usage", FIELD(model.keys.usage), {"ema", "cumulative", "flux"},
      "How usage is counted: running mean of counts, their sum, or running mean of counts relative to fair use.");
  builder.number("ema_decay", FIELD(model.keys.ema_decay), 0, 1, "How much of the running usage is kept in each step.")
      .below_high = true;
  builder.number("theta_percentile", FIELD(model.keys.theta_percentile), 0, 1,
                 "Experts below this quantile of usage decay.");
  builder.number("theta", FIELD(model.keys.theta), -1, unlimited,
                 "Usage below which experts decay, instead of the quantile; negative: the quantile holds.");
  builder.integer("decay_warmup", FIELD(model.keys.decay_warmup), 0, unlimited, "Steps before decay begins.");
  builder.choice("constraint", FIELD(model.keys.constraint), {"normalize", "normalize_used", "clamp", "free"},
                 "Length of keys after an update: all 1, used ones 1, at most 1, or free.");
  builder.choice("constraint_order", FIELD(model.keys.constraint_order), {"before_decay", "last"},
                 "Whether the constraint comes before or after decay.");
  builder
      .number("key_ema", FIELD(model.keys.key_ema), 0, 1,
              "Route by a running mean of the keys with this factor; 0: by the keys themselves.")
      .below_high = true;
  builder.number("respawn_threshold", FIELD(model.keys.respawn_threshold), 0, unlimited,
                 "A key shorter than this is reborn at a query (phoenix); 0: never.");
  RecipeKey& frozen =
      builder.add("frozen_layers", SettingKind::integers, "Layers whose keys never move (study D2), counted from 0.");
  frozen.low = 0;
  frozen.get = [](const Recipe& recipe) {
    return Setting(std::vector<double>(recipe.model.keys.frozen_layers.begin(), recipe.model.keys.frozen_layers.end()));
  };
  frozen.set = [](Recipe& recipe, const Setting& value) {
    const auto& layers = std::get<std::vector<double>>(value);
    recipe.model.keys.frozen_layers.assign(layers.begin(), layers.end());
  };
  builder.integer("update_every", FIELD(model.keys.update_every), 1, unlimited,
                  "Steps from one key update to the next.");
  builder
      .number("update_fraction", FIELD(model.keys.update_fraction), 0, 1,
              "Share of the positions, drawn at random, that take part in an update.")
      .above_low = true;
  builder.number("topk_warmup", FIELD(model.topk_warmup), 0, 1,
                 "Share of the steps, from the first, in which only one expert is chosen.");
  builder.number("balance_loss", FIELD(model.balance_loss), 0, unlimited,
                 "Coefficient of a load-balancing loss; 0: none.");
  RecipeKey& band = builder.add("entropy_band", SettingKind::numbers,
                                "[low, high] in nats: a penalty keeps the mean gate entropy inside; [] for none.");
  band.low = 0;
  band.lengths = {0, 2};
  band.get = [](const Recipe& recipe) {
    if (recipe.model.entropy_high < 0) return Setting(std::vector<double>{});
    return Setting(std::vector<double>{recipe.model.entropy_low, recipe.model.entropy_high});
  };
  band.set = [](Recipe& recipe, const Setting& value) {
    const auto& ends = std::get<std::vector<double>>(value);
    recipe.model.entropy_low = ends.empty() ? -1 : ends[0];
    recipe.model.entropy_high = ends.empty() ? -1 : ends[1];
  };
  builder.number("entropy_coefficient", FIELD(model.entropy_coefficient), 0, unlimited, "Coefficient of that penalty.");
}

void add_data(Builder& builder) {
  builder.table = "data";
  builder.text("train", FIELD(data.train),
               "Training text: a file, a folder, or \"builtin:DOMAIN\". A relative path is looked up from the working "
               "folder, then from the recipe's.");
  builder.text("valid", FIELD(data.valid), "Validation text, likewise; empty: valid_share of the training text.");
  builder.text("separator", FIELD(data.separator),
               "The line between two documents of a plain-text file; empty: a file is one document.");
  builder.text("field", FIELD(data.field), "Name of the text's field in JSON lines; empty: text.");
  builder.choice("unit", FIELD(data.unit), {"document", "line", "paragraph"},
                 "What one document is: what stands between separators, or each line or paragraph of that.");
  builder.choice("long", FIELD(data.long_documents), {"split", "cut"},
                 "Documents longer than seq_len: read as consecutive sequences (split), or only their beginning (cut, "
                 "as published).");
  builder.integer("train_stories", FIELD(data.train_stories), 0, unlimited,
                  "Use only the first so many training documents; 0: all.");
  builder.integer("valid_stories", FIELD(data.valid_stories), 0, unlimited, "Likewise for validation.");
  builder
      .number("valid_share", FIELD(data.valid_share), 0, 1,
              "Share of the training documents kept for validation where `valid` is empty; of the end of each where "
              "there are too few.")
      .below_high = true;
  builder.text("tokenizer", FIELD(data.tokenizer),
               "\"bytelevel\" or \"whitespace\" (trained on the training text; the published runs used whitespace), or "
               "a tokenizer.json.");
  builder.integer("vocab", FIELD(data.vocab), 4, 1048576, "Size of the vocabulary to train.");
  builder.boolean("count_pads", FIELD(data.count_pads),
                  "Fill rows with padding that is predicted, routed and counted like text, as the runs up to v4 did.");
  builder.boolean("eos", FIELD(data.eos), "End each story with [EOS]; the first prototypes did not.");
}

void add_train(Builder& builder) {
  builder.table = "train";
  builder.integer("epochs", FIELD(train.epochs), 1, 1e9, "Times the training text is read.");
  builder.integer("max_steps", FIELD(train.max_steps), 0, unlimited,
                  "Stop, and end the learning-rate schedule, after so many steps; 0: as many as the epochs give.");
  builder.integer("batch", FIELD(train.batch), 1, 1048576, "Sequences in one pass.");
  builder.integer("accumulate", FIELD(train.accumulate), 1, 1048576, "Passes whose gradients make one step.");
  builder.number("lr", FIELD(train.lr), 0, unlimited, "Highest learning rate.").above_low = true;
  builder.integer("warmup_steps", FIELD(train.warmup_steps), 0, unlimited,
                  "Steps over which the learning rate rises to lr.");
  builder.choice("schedule", FIELD(train.schedule), {"cosine", "constant"},
                 "Learning rate after that: down to 0 along a cosine, or as it is.");
  builder.number("weight_decay", FIELD(train.weight_decay), 0, unlimited,
                 "Weight decay of AdamW, on every trained parameter.");
  RecipeKey& betas = builder.add("betas", SettingKind::numbers, "The two averaging factors of AdamW.");
  betas.low = 0;
  betas.high = 1;
  betas.below_high = true;
  betas.lengths = {2};
  betas.get = [](const Recipe& recipe) { return Setting(std::vector<double>{recipe.train.beta1, recipe.train.beta2}); };
  betas.set = [](Recipe& recipe, const Setting& value) {
    recipe.train.beta1 = std::get<std::vector<double>>(value)[0];
    recipe.train.beta2 = std::get<std::vector<double>>(value)[1];
  };
  builder.number("eps", FIELD(train.eps), 0, 1, "The small number in AdamW's divisor.").above_low = true;
  builder.number("clip", FIELD(train.clip), 0, unlimited, "Longest gradient; 0: no limit.");
  builder.integer("eval_every", FIELD(train.eval_every), 0, unlimited,
                  "Steps from one evaluation to the next; 0: only after each epoch.");
  builder.integer("measure_every", FIELD(train.measure_every), 1, unlimited,
                  "Steps from one line of cheap measures to the next.");
  builder.integer("checkpoint_every", FIELD(train.checkpoint_every), 0, unlimited,
                  "Steps from one checkpoint to the next; 0: only after each epoch.");
  builder.integer("keep_checkpoints", FIELD(train.keep_checkpoints), 1, 1e6,
                  "Checkpoints kept; older ones are removed.");
  builder.integer("save_keys_every", FIELD(train.save_keys_every), 0, unlimited,
                  "Steps from one saving of the key positions to the next; 0: at each evaluation.");
  builder.integer("patience", FIELD(train.patience), 0, 1e6,
                  "Stop after so many evaluations without a better loss; 0: never.");
  builder.choice("eval_average", FIELD(train.eval_average), {"tokens", "batches"},
                 "Validation loss as a mean over tokens, or over batches as published.");
  builder.choice("precision", FIELD(train.precision), {"auto", "fp32", "bf16", "f64"},
                 "Of the computation; auto: bf16 on a GPU, fp32 on a CPU.");
  builder
      .choice("device", FIELD(train.device), {"auto", "cpu", "cuda", "cuda:N"},
              "auto: the first GPU where there is one; cuda:N: GPU number N, from 0.")
      .accepts = [](const std::string& name) { return name == "auto" || device_named(name).has_value(); };
  builder.integer("threads", FIELD(train.threads), 0, 4096,
                  "CPU threads; 0: one for each CPU that the process may use.");
}

void add_memory(Builder& builder) {
  builder.table = "memory";
  builder.integer("slots", FIELD(memory.slots), 0, static_cast<double>(most_slots),
                  "Slots of a memory that is read from the training text when training has ended; 0: none.");
  builder.number("match", FIELD(memory.match), -1, never_match,
                 "How near a key of the same token must be for a hit; 2: nothing is ever merged.");
  RecipeKey& sharpness = builder.add("sharpness", SettingKind::numbers,
                                     "How sharply nearness counts; of several the mixture finds out which to hear.");
  sharpness.low = 0;
  sharpness.high = 1e5;
  for (int n = 1; n <= static_cast<int>(most_sharpnesses); ++n) sharpness.lengths.push_back(n);
  sharpness.get = [](const Recipe& recipe) { return Setting(recipe.memory.sharpness); };
  sharpness.set = [](Recipe& recipe, const Setting& value) {
    recipe.memory.sharpness = std::get<std::vector<double>>(value);
  };
  builder.number("decay", FIELD(memory.decay), 0, 1, "Of the slots' usage, a window.");
  builder.number("share", FIELD(memory.share), 0, 1,
                 "What every weight of the mixture of model and memory is given anew after each token.");
  builder.integer("window", FIELD(memory.window), 0, static_cast<double>(most_window),
                  "Tokens from one lesson to the next; 0: half of model.seq_len, at most 256.");
}

#undef FIELD

// The number as a reader would write it in a range: whole numbers without a point.
std::string bound(double value) { return fmt::format("{}", value); }

std::string range_words(const RecipeKey& key) {
  const bool has_low = std::isfinite(key.low), has_high = std::isfinite(key.high);
  if (has_low && has_high && !key.above_low && !key.below_high)
    return fmt::format(" from {} to {}", bound(key.low), bound(key.high));
  std::string words;
  if (has_low) words = (key.above_low ? " above " : " of at least ") + bound(key.low);
  if (has_high) {
    words += words.empty() ? "" : " and";
    words += (key.below_high ? " below " : " at most ") + bound(key.high);
  }
  return words;
}

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
    Builder builder;
    add_top(builder);
    add_model(builder);
    add_some(builder);
    add_data(builder);
    add_train(builder);
    add_memory(builder);
    return builder.keys;
  }();
  return keys;
}

const RecipeKey* find_recipe_key(std::string_view full_name) {
  for (const RecipeKey& key : recipe_keys()) {
    if (key.full_name() == full_name) return &key;
  }
  return nullptr;
}

const std::vector<RecipeTable>& recipe_tables() {
  static const std::vector<RecipeTable> tables = {
      {"", ""},
      {"model", "The transformer."},
      {"some", "Experts, routing and the rules that move the keys. Unused where model.ffn is not \"some\"."},
      {"data", "The text and its tokens."},
      {"train", "The run."},
      {"memory", "What is learnt in use, without a gradient: slots with a key and a token."},
  };
  return tables;
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

const std::vector<std::string>& anneal_shapes() {
  static const std::vector<std::string> shapes = {"none", "linear", "cosine", "exponential"};
  return shapes;
}

AnnealShape anneal_shape(const std::string& name) {
  const auto& shapes = anneal_shapes();
  return static_cast<AnnealShape>(std::find(shapes.begin(), shapes.end(), name) - shapes.begin());
}

std::string RecipeKey::wants() const {
  switch (kind) {
    case SettingKind::boolean: return "true or false";
    case SettingKind::integer: return "a whole number" + range_words(*this);
    case SettingKind::number: return "a number" + range_words(*this);
    case SettingKind::text: return "a text in quotes";
    case SettingKind::choice: {
      std::string words;
      for (std::size_t i = 0; i < choices.size(); ++i) {
        words += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + ("\"" + choices[i] + "\"");
      }
      return words;
    }
    case SettingKind::numbers: {
      std::string words = lengths == std::vector<int>{2} ? "a list of two numbers"
                          : lengths == std::vector<int>{0, 2}
                              ? "a list of two numbers or []"
                              : fmt::format("a list of 1 to {} numbers", lengths.back());
      return range_words(*this).empty() ? words : words + ", each" + range_words(*this);
    }
    case SettingKind::integers: return "a list of whole numbers, each" + range_words(*this);
    case SettingKind::layer_scale: return "a number or a list of numbers, each" + range_words(*this);
    case SettingKind::anneal:
      return "a table such as {shape = \"linear\", start = 1.0, end = 0.0}, shape \"none\", \"linear\", \"cosine\" or "
             "\"exponential\"";
  }
  return "";
}

std::string RecipeKey::write(const Setting& value) const {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* number = std::get_if<double>(&value)) return toml_number(*number);
  if (const auto* anneal = std::get_if<BetaAnneal>(&value)) {
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

}  // namespace some::train
