#include "recipe/recipe.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/old_names.h"
#include "data/source.h"
#include "recipe/common_names.h"
#include "recipe/schema.h"
#include "recipe/tables.h"
#include "recipe/toml.h"
#include "recipe/values.h"

namespace some {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t deepest_base = 16;

std::string arrows(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " -> ") + name;
  return text;
}

// State while reading a recipe: the files it is built from, where each key was last set, and the values so far.
class Reader {
 public:
  enum class Names { current, old_too };
  explicit Reader(Names names = Names::current) : names_(names) {}
  Recipe recipe;

  void read_text(const std::string& text, const std::string& origin, std::vector<std::string> chain) {
    const TomlNode root = parse_toml(text, origin);
    if (const TomlNode* base = root.find("base")) read_base(*base, origin, chain);
    recipe.title.clear();
    recipe.published.reset();
    recipe.from.reset();
    recipe.run_id.clear();
    for (const auto& [name, node] : root.entries) {
      if (name == "base") continue;
      const std::string place = fmt::format("{}:{}", origin, node.line);
      if (name == "published") {
        recipe.published = read_published(node, origin, place);
      } else if (name == "from") {
        recipe.from = read_from(node, origin, place);
      } else if (name == "run") {
        recipe.run_id = read_run_id(node, origin, place);
      } else if (name == "stage") {
        read_stages(node, origin, place);
      } else if (node.kind == TomlNode::Kind::table && find_recipe_key(name) == nullptr) {
        read_table(name, node, origin, place);
      } else {
        assign(name, node, place, origin);
      }
    }
    if (root.find("title") == nullptr) recipe.title = first_comment(text);
    if (places_["data.train_documents"].starts_with(origin + ":")) limits_builtin_ = is_builtin(recipe.data.train);
  }

  // Starts from a recipe that was already read.
  void start_from(const Recipe& given) {
    recipe = given;
    recipe.notes.clear();
    limits_builtin_ = is_builtin(recipe.data.train);
  }

  void override_with(const std::string& text) {
    std::string place = "override " + shortened(text, 200);
    std::replace(place.begin(), place.end(), '\n', ' ');  // a message is one line
    const std::size_t sign = text.find('=');
    if (sign == std::string::npos || sign == 0)
      bad_input(Code::setting_syntax, "{}: must be KEY=VALUE, such as train.max_steps=100", place);
    const std::string name = text.substr(0, sign), value = text.substr(sign + 1);
    if (name == "base" || name == "published" || name.starts_with("published.")) {
      bad_input(Code::setting_misplaced, "{}: {} can only be set in the file", place, name);
    }
    if (name == "from" || name.starts_with("from."))
      bad_input(Code::setting_misplaced, "{}: use --from RUN to start from the weights of a run", place);
    if (name == "run" || name.starts_with("run."))
      bad_input(Code::setting_misplaced, "{}: [run] is written by the program; it cannot be set", place);
    const auto [stage, own_name] = stage_in(name, place);
    const RecipeKey& key = known(own_name, place);
    TomlNode bare;
    bare.kind = TomlNode::Kind::text;
    bare.text = value;
    TomlNode node = bare;
    try {
      // A single TOML value; anything else is taken as bare text, so that paths and names need no quotes.
      const TomlNode parsed = parse_toml("value = " + value, place);
      if (parsed.entries.size() == 1) node = parsed.entries[0].second;
    } catch (const Error&) {
    }
    const bool is_text = key.kind == SettingKind::text || key.kind == SettingKind::choice;
    if (is_text && node.kind != TomlNode::Kind::text) node = bare;
    if (stage) {
      assign_in_stage(*stage, own_name, node, place, "");
      return;
    }
    assign(name, node, place, "");
    if (name == "data.train_documents") limits_builtin_ = false;
    // An explicit override applies to every stage.
    for (Stage& one : recipe.stages)
      std::erase_if(one.settings, [&](const auto& setting) { return setting.first == name; });
  }

  void finish(const std::string& origin) {
    recipe.model.seed = recipe.seed;
    recipe.model.vocab = recipe.data.vocab;
    if (scale_of_all_layers_)
      recipe.model.keys.beta_layer_scale.assign(static_cast<std::size_t>(recipe.model.layers), *scale_of_all_layers_);
    for (const char* name : {"data.train", "data.valid", "data.tokenizer"}) {
      const RecipeKey& key = *find_recipe_key(name);
      key.set(recipe, located(std::get<std::string>(key.get(recipe)), name));
    }
    drop_limit();
    if (recipe.stages.empty()) shorten_warmup(recipe, "", [](std::int64_t) {});
    check(recipe, "", origin);
    finish_stages(origin);
  }

 private:
  std::string current(const std::string& name) const { return names_ == Names::old_too ? current_setting(name) : name; }
  TomlNode current(const std::string& name, TomlNode node) const {
    if (names_ == Names::old_too && node.kind == TomlNode::Kind::text) node.text = current_value(name, node.text);
    return node;
  }

  Names names_;
  std::map<std::string, std::string> places_;     // key -> "file:line" or "override ..."
  std::map<std::string, std::string> folders_;    // key -> folder of the file that set it
  std::optional<double> scale_of_all_layers_;     // some.beta_layer_scale given as one number
  std::map<std::size_t, double> scale_in_stage_;  // the same per stage
  bool limits_builtin_ = false;                   // data.train_documents was set for built-in text

  // A limit that a recipe sets for built-in text, whose length is arbitrary, must not truncate a user's own text.
  void drop_limit() {
    if (!limits_builtin_ || recipe.data.train_documents == 0) return;
    const auto note = [&](const std::string& text) {
      recipe.notes.push_back(fmt::format("data.train_documents = {} is meant for built-in text; {} is used as a whole",
                                         recipe.data.train_documents, text));
    };
    for (std::size_t i = 0; i < recipe.stages.size(); ++i) {
      auto& settings = recipe.stages[i].settings;
      const auto of = [&](const char* name) {
        return std::find_if(settings.begin(), settings.end(), [&](const auto& one) { return one.first == name; });
      };
      const auto text = of("data.train");
      if (text == settings.end() || of("data.train_documents") != settings.end()) continue;
      const auto name = std::get<std::string>(text->second);
      if (is_builtin(name)) continue;
      note(name);
      settings.emplace_back("data.train_documents", std::int64_t{0});
    }
    if (is_builtin(recipe.data.train)) return;
    note(recipe.data.train);
    recipe.data.train_documents = 0;
  }

  // Shortens a warm-up that is longer than the run if the two numbers come from different places: a user who overrides
  // the steps of a recipe need not know its warm-up. Contradictory numbers in one place are an error.
  template <typename Set>
  void shorten_warmup(Recipe& one, const std::string& prefix, const Set& set) {
    const std::int64_t steps = one.train.max_steps, warmup = one.train.warmup_steps;
    if (names_ == Names::old_too || steps == 0 || warmup <= steps) return;
    const auto origin = [&](const char* name) {
      auto found = places_.find(prefix + name);
      if (found == places_.end()) found = places_.find(name);
      const std::string place = found == places_.end() ? "" : found->second;
      return place.starts_with("override") ? "override" : place.substr(0, place.rfind(':'));
    };
    if (origin("train.max_steps") == origin("train.warmup_steps")) return;
    one.train.warmup_steps = std::max<std::int64_t>(1, steps / 10);
    set(one.train.warmup_steps);
    recipe.notes.push_back(fmt::format("{}train.warmup_steps is {} instead of {}: the run has {} steps", prefix,
                                       one.train.warmup_steps, warmup, steps));
  }

  // The first value of errors from combination checks is the key at fault; the message adds where it was set.
  void check(const Recipe& one, const std::string& prefix, const std::string& origin) const {
    try {
      check_config(one.model);
      check_run(one);
      if (one.memory.slots > 0) check_settings(one.memory, "memory.");
    } catch (const Error& error) {
      const std::string message = error.what(), key = error.values().empty() ? "" : error.values().front();
      auto place = places_.find(prefix + key);
      if (place == places_.end()) place = places_.find(key);
      const std::string where = place == places_.end() ? origin : place->second;
      const std::string stage = prefix.substr(0, prefix.size() - (prefix.empty() ? 0 : 1));
      const Error located = stage.empty() ? error : error.within(stage, fmt::format("in {}: {}", stage, message));
      throw located.within(where, fmt::format("{}: {}", where, located.what()));
    }
  }

  // --- stages ---

  static std::string stage_prefix(std::size_t stage) { return fmt::format("stage.{}.", stage + 1); }

  // Splits "stage.2.train.lr" into the index of the second stage and the name of the key.
  std::pair<std::optional<std::size_t>, std::string> stage_in(const std::string& name, const std::string& place) const {
    if (name != "stage" && !name.starts_with("stage.")) return {std::nullopt, name};
    const std::size_t begin = std::min<std::size_t>(name.size(), 6), dot = name.find('.', begin);
    const std::string number = name.substr(begin, dot == std::string::npos ? dot : dot - begin);
    const bool digits = !number.empty() && number.size() < 6 && number.find_first_not_of("0123456789") == number.npos;
    if (!digits || dot == std::string::npos)
      bad_input(Code::setting_syntax, "{}: must be stage.NUMBER.KEY, such as stage.1.train.lr", place);
    const auto stage = static_cast<std::size_t>(std::stoul(number));
    if (stage < 1 || stage > recipe.stages.size())
      bad_input(Code::stage_unknown, "{}: stage {} not found; the recipe has {}", place, stage,
                recipe.stages.empty() ? "no [[stage]]" : fmt::format("stages 1 to {}", recipe.stages.size()));
    return {stage - 1, name.substr(dot + 1)};
  }

  void read_stages(const TomlNode& node, const std::string& origin, const std::string& place) {
    constexpr std::size_t max_stages = 1000;
    if (node.kind != TomlNode::Kind::array || node.items.empty() || node.items.size() > max_stages)
      bad_input(Code::setting_type, "{}: {}: must be tables headed [[stage]], at most {}", place, "stage", max_stages);
    recipe.stages.assign(node.items.size(), {});  // stages of a base are replaced, not extended
    scale_in_stage_.clear();
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      if (node.items[i].kind != TomlNode::Kind::table)
        bad_input(Code::setting_type, "{}: {}: must be tables headed [[stage]], not {}", place, "stage",
                  node.items[i].describe());
      for (const auto& [name, value] : node.items[i].entries) read_in_stage(i, name, value, origin);
    }
  }

  void read_in_stage(std::size_t stage, const std::string& name, const TomlNode& node, const std::string& origin) {
    const std::string place = fmt::format("{}:{}", origin, node.line);
    if (name == "title") {
      if (node.kind != TomlNode::Kind::text)
        bad_input(Code::setting_type, "{}: {}title: must be a string, not {}", place, stage_prefix(stage),
                  node.describe());
      recipe.stages[stage].title = node.text;
    } else if (node.kind == TomlNode::Kind::table && find_recipe_key(name) == nullptr) {
      check_table(name, place);
      for (const auto& [key, value] : node.entries)
        assign_in_stage(stage, name + "." + key, value, fmt::format("{}:{}", origin, value.line), origin);
    } else {
      assign_in_stage(stage, name, node, place, origin);
    }
  }

  void assign_in_stage(std::size_t stage, const std::string& given, const TomlNode& given_node,
                       const std::string& place, const std::string& file) {
    const std::string name = current(given);
    const TomlNode node = current(name, given_node);
    const RecipeKey& key = known(name, place);
    const auto refuse = [&](const char* why) {
      bad_input(Code::setting_misplaced, "{}: {}{}: {}", place, stage_prefix(stage), name, why);
    };
    switch (key.role) {
      case SettingRole::model: refuse("decides what the weights are; it must be the same in every stage"); break;
      case SettingRole::tokens: refuse("a run has one tokenizer, trained on the texts of all its stages"); break;
      case SettingRole::run: refuse("applies to the whole run, not to a stage"); break;
      case SettingRole::machine: refuse("applies to the machine, not to a stage"); break;
      case SettingRole::training_stage:
      case SettingRole::length:
      case SettingRole::habit: break;
    }
    if (key.kind == SettingKind::layer_scale) {
      scale_in_stage_.erase(stage);
      if (node.is_number()) {
        check_range(key, node.number, node, place);
        scale_in_stage_[stage] = node.number;
      }
    }
    auto& settings = recipe.stages[stage].settings;
    std::erase_if(settings, [&](const auto& setting) { return setting.first == name; });
    settings.emplace_back(name, setting_value(key, node, place));
    places_[stage_prefix(stage) + name] = place;
    folders_[stage_prefix(stage) + name] = fs::path(file).parent_path().string();
  }

  void finish_stages(const std::string& origin) {
    for (std::size_t i = 0; i < recipe.stages.size(); ++i) {
      for (auto& [name, value] : recipe.stages[i].settings) {
        if (name == "data.train" || name == "data.valid")
          value = located(std::get<std::string>(value), stage_prefix(i) + name);
        if (const auto scale = scale_in_stage_.find(i);
            scale != scale_in_stage_.end() && find_recipe_key(name)->kind == SettingKind::layer_scale)
          value = std::vector<double>(static_cast<std::size_t>(recipe.model.layers), scale->second);
      }
    }
    if (recipe.stages.empty()) return;
    std::vector<Recipe> each = stage_recipes(recipe);
    for (std::size_t i = 0; i < each.size(); ++i) {
      shorten_warmup(each[i], stage_prefix(i), [&](std::int64_t steps) {
        auto& settings = recipe.stages[i].settings;
        std::erase_if(settings, [](const auto& one) { return one.first == "train.warmup_steps"; });
        settings.emplace_back("train.warmup_steps", steps);
      });
      check(each[i], stage_prefix(i), origin);
    }
  }

  void read_base(const TomlNode& base, const std::string& origin, std::vector<std::string> chain) {
    const std::string place = fmt::format("{}:{}", origin, base.line);
    if (base.kind != TomlNode::Kind::text || base.text.empty()) {
      bad_input(Code::setting_type, "{}: {}: must be the file name of another recipe, such as \"a4.toml\", not {}",
                place, "base", base.describe());
    }
    const std::string path = (fs::path(origin).parent_path() / base.text).lexically_normal().string();
    chain.push_back(fs::path(origin).lexically_normal().string());
    if (std::find(chain.begin(), chain.end(), path) != chain.end()) {
      bad_input(Code::recipe_base_invalid, "{}: {} = \"{}\": the recipe is its own base ({} -> {})", place, "base",
                shortened(base.text, 200), shortened(arrows(chain), 400), shortened(path, 400));
    }
    if (chain.size() > deepest_base)
      bad_input(Code::recipe_base_invalid, "{}: {}: more than {} recipes are based on one another", place, "base",
                deepest_base);
    if (!exists_path(path))
      bad_input(Code::recipe_base_invalid, "{}: {} = \"{}\": file {} not found", place, "base",
                shortened(base.text, 200), shortened(path, 400));
    read_text(read_file(path), path, chain);
  }

  void read_table(const std::string& table, const TomlNode& node, const std::string& origin, const std::string& place) {
    check_table(table, place);
    for (const auto& [name, value] : node.entries) {
      assign(table + "." + name, value, fmt::format("{}:{}", origin, value.line), origin);
    }
  }

  static void check_table(const std::string& table, const std::string& place) {
    std::vector<std::string> tables;
    for (const RecipeTable& known_table : recipe_tables()) {
      if (!known_table.name.empty()) tables.push_back(known_table.name);
    }
    if (std::find(tables.begin(), tables.end(), table) != tables.end()) return;
    tables.insert(tables.end(), {"published", "from", "run", "stage"});
    const std::string meant = nearest_name(table, tables);
    bad_input(Code::setting_unknown, "{}: unknown table [{}]; did you mean {}?", place, table,
              meant == "stage" ? "[[stage]]" : "[" + meant + "]");
  }

  const RecipeKey& known(const std::string& given, const std::string& place) const {
    if (const RecipeKey* key = find_recipe_key(given)) return *key;
    const std::string name = shortened(given, 200);
    if (const std::string now = current_setting(given); now != given)
      bad_input(Code::setting_unknown, "{}: unknown key {}; it is now named {}", place, name, now);
    const std::string last = name.substr(name.rfind('.') + 1);
    std::vector<std::string> names;
    for (const RecipeKey& key : recipe_keys()) {
      // The right name in the wrong table is a better suggestion than any similar name.
      if (key.name == last)
        bad_input(Code::setting_unknown, "{}: unknown key {}; did you mean {}?", place, name, key.full_name());
      names.push_back(key.full_name());
    }
    if (name == "model" || name == "some" || name == "data" || name == "train") {
      bad_input(Code::setting_type,
                "{}: {} is a table: its keys are written under [{}], or as {}.KEY=VALUE on the command line", place,
                name, name, name);
    }
    std::string meant = misspelled_name(name, names);
    if (const std::string setting = setting_commonly_called(name); !setting.empty()) meant = setting;
    if (const std::string advice = instead_of_unsupported(name); !advice.empty())
      bad_input(Code::setting_unknown, "{}: unknown key {}; {}", place, name, advice);
    if (meant.empty())
      bad_input(Code::setting_unknown, "{}: unknown key {}; recipes/default.toml has every key", place, name);
    bad_input(Code::setting_unknown, "{}: unknown key {}; did you mean {}?", place, name, meant);
  }

  void assign(const std::string& given, const TomlNode& given_node, const std::string& place, const std::string& file) {
    const std::string name = current(given);
    const TomlNode node = current(name, given_node);
    const RecipeKey& key = known(name, place);
    if (key.kind == SettingKind::layer_scale) {
      scale_of_all_layers_.reset();
      if (node.is_number()) {
        check_range(key, node.number, node, place);
        scale_of_all_layers_ = node.number;
      }
    }
    key.set(recipe, setting_value(key, node, place));
    places_[name] = place;
    folders_[name] = fs::path(file).parent_path().string();
  }

  // Checks combinations of keys outside the model. As in check_config, a message begins with the key at fault.
  static void check_run(const Recipe& recipe) {
    if (recipe.data.train.empty())
      bad_input(Code::setting_out_of_range, "{} = \"\": must be a file, a folder or \"builtin:stories\"", "data.train");
    if (recipe.data.unit != TextUnit::document && recipe.data.train.starts_with("builtin:"))
      bad_input(Code::setting_conflict, "{}: built-in text consists of documents; lines and paragraphs are for files",
                "data.unit");
    if (recipe.data.tokenizer.empty())
      bad_input(Code::setting_out_of_range, "{} = \"\": must be \"bytelevel\", \"whitespace\" or a tokenizer.json",
                "data.tokenizer");
    // Three special tokens and one token per byte.
    if (recipe.data.tokenizer == "bytelevel" && recipe.data.vocab < 259) {
      bad_input(Code::setting_out_of_range,
                "{} = {}: a bytelevel vocabulary has at least 259 tokens, 256 bytes and 3 special ones", "data.vocab",
                recipe.data.vocab);
    }
    if (recipe.data.valid.empty() && recipe.data.valid_share <= 0) {
      bad_input(Code::setting_out_of_range, "{} = 0: leaves no validation text; set data.valid, or a share > 0",
                "data.valid_share");
    }
    if (recipe.train.max_steps > 0 && recipe.train.warmup_steps > recipe.train.max_steps) {
      bad_input(Code::setting_out_of_range, "{} = {}: must not exceed train.max_steps = {}; lower it too",
                "train.warmup_steps", recipe.train.warmup_steps, recipe.train.max_steps);
    }
    if (recipe.train.samples > 0 && !recipe.model.causal) {
      bad_input(Code::setting_conflict,
                "{} = {}: a model without a causal mask cannot generate text; set train.samples = 0", "train.samples",
                recipe.train.samples);
    }
    if (recipe.train.precision == PrecisionChoice::f64 && recipe.train.device.kind == DeviceChoice::Kind::cuda) {
      bad_input(Code::setting_conflict, "{} = \"f64\": works on the CPU only; set train.device = \"cpu\"",
                "train.precision");
    }
  }

  // Resolves a relative path that does not exist in the working folder from the folder of the recipe that set it.
  std::string located(const std::string& path, const std::string& name) const {
    const auto folder = folders_.find(name);
    if (path.empty() || path.starts_with("builtin:") || folder == folders_.end() || folder->second.empty()) return path;
    if (fs::path(path).is_absolute() || exists_path(path)) return path;
    const std::string beside = (fs::path(folder->second) / path).lexically_normal().string();
    return exists_path(beside) ? beside : path;
  }

  static std::string first_comment(const std::string& text) {
    if (!text.starts_with("#")) return "";
    const std::string line = text.substr(0, text.find('\n'));
    const std::size_t first = line.find_first_not_of("# \t"), last = line.find_last_not_of(" \t\r");
    return first == std::string::npos ? "" : line.substr(first, last - first + 1);
  }
};

}  // namespace

std::vector<Recipe> stage_recipes(const Recipe& recipe) {
  if (recipe.stages.empty()) return {recipe};
  std::vector<Recipe> out;
  for (const Stage& stage : recipe.stages) {
    Recipe& one = out.emplace_back(recipe);
    one.stages.clear();
    for (const auto& [name, value] : stage.settings) find_recipe_key(name)->set(one, value);
  }
  return out;
}

std::string stage_name(const Recipe& recipe, std::size_t stage) {
  const std::string& title = recipe.stages.at(stage).title;
  return title.empty() ? fmt::format("stage {}", stage + 1) : title;
}

namespace {

Recipe read(Reader reader, const std::string& text, const std::string& origin,
            const std::vector<std::string>& overrides) {
  reader.read_text(text, origin, {});
  for (const std::string& override_text : overrides) reader.override_with(override_text);
  reader.finish(origin);
  reader.recipe.name = fs::path(origin).stem().string();
  return reader.recipe;
}

}  // namespace

Recipe parse_recipe(const std::string& text, const std::string& origin, const std::vector<std::string>& overrides) {
  return read(Reader(), text, origin, overrides);
}

Recipe override_recipe(const Recipe& recipe, const std::string& origin, const std::vector<std::string>& overrides) {
  Reader reader;
  reader.start_from(recipe);
  for (const std::string& override_text : overrides) reader.override_with(override_text);
  reader.finish(origin);
  return reader.recipe;
}

Recipe load_written_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  return read(Reader(Reader::Names::old_too), read_file(path), path, overrides);
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  if (folder_exists(path))
    bad_input(Code::file_not_regular, "{}: is a folder; a recipe is a TOML file such as recipes/default.toml", path);
  if (!exists_path(path))
    bad_input(Code::recipe_not_found, "{}: recipe not found; a recipe is a TOML file such as recipes/default.toml",
              path);
  return parse_recipe(read_file(path), path, overrides);
}

}  // namespace some
