#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "fuzz/fuzz.h"
#include "lab/series.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"
#include "runs/checkpoint.h"
#include "runs/history.h"
#include "runs/run.h"
#include "runs/train_state.h"
#include "verify/verify.h"

namespace some::fuzz {
namespace {

namespace fs = std::filesystem;

const std::string recipes = source_folder() + "/recipes/";

std::vector<std::string> toml_words() {
  std::vector<std::string> words = {"[",
                                    "]",
                                    "[[",
                                    "]]",
                                    "{",
                                    "}",
                                    "=",
                                    ".",
                                    "\"",
                                    "'",
                                    "#",
                                    "nan",
                                    "inf",
                                    "-1",
                                    "0",
                                    "1e400",
                                    "\"\"\"",
                                    "'''",
                                    "a.b.c.d",
                                    "1979-05-27",
                                    "[1, 2]",
                                    "{shape = \"linear\"}",
                                    "\\u0000",
                                    "\\U00110000",
                                    "9223372036854775808",
                                    "0x7fffffff",
                                    "true",
                                    "[model]",
                                    "[published]",
                                    "base = \"tiny.toml\"",
                                    "\"default.toml\""};
  for (const RecipeKey& key : recipe_keys()) words.push_back(key.full_name());
  return words;
}

class RecipeTarget : public Target {
 public:
  explicit RecipeTarget(bool overrides) : overrides_(overrides) {
    for (const char* name : {"tiny.toml", "default.toml", "a4.toml"}) seeds_.push_back(read_whole(recipes + name));
    Recipe staged = load_recipe(recipes + "continual.toml", {"stage.2.some.beta_layer_scale=0.5"});
    staged.from = InitializedFrom{"runs/a", 40, "0123456789abcdef", true};
    seeds_.push_back(write_recipe(staged));
    for (const std::string& seed : seeds_) short_seeds_.push_back(part_of(seed));
  }
  std::string name() const override { return overrides_ ? "override" : "recipe"; }
  std::string origin() const override { return overrides_ ? "override" : "some/recipe.toml"; }

  std::string make(Dice& dice) override {
    if (!overrides_) {
      // Long files are mostly comments, which take most of the time and none of the faults.
      std::string text = dice.of(dice.one_in(16) ? seeds_ : short_seeds_);
      damage_text(text, dice, words_);
      return text;
    }
    const RecipeKey& key = dice.of(recipe_keys());
    std::string value = dice.one_in(2) ? key.write(key.get(recipe_)) : dice.of(words_);
    if (dice.one_in(2)) damage_text(value, dice, words_);
    return key.full_name() + (dice.one_in(20) ? "" : "=") + value;
  }

  void read(const std::string& input) override {
    if (overrides_) {
      parse_recipe(seeds_[0], "override-base.toml", {input});
      return;
    }
    const Recipe recipe = parse_recipe(input, origin(), {});
    if (input.size() % 4 != 0) return;  // the rest takes four times as long
    const std::string written = write_recipe(recipe);
    if (write_recipe(parse_recipe(written, origin(), {})) != written)
      throw std::logic_error("what is written reads back as something else");
  }

 private:
  // Every third setting, with its table.
  static std::string part_of(const std::string& text) {
    std::string out;
    int number = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      if (line.empty() || line[0] == '#') continue;
      if (line[0] != '[' && ++number % 3 != 0) continue;
      if (const std::size_t comment = line.find(" #");
          comment != std::string::npos && line.find('"') == std::string::npos)
        line.resize(comment);
      out += line + "\n";
    }
    return out;
  }

  const bool overrides_;
  const std::vector<std::string> words_ = toml_words();
  std::vector<std::string> seeds_, short_seeds_;
  Recipe recipe_;
};

class SeriesTarget : public Target {
 public:
  explicit SeriesTarget(const std::string& scratch) : folder_(scratch + "/series") {
    fs::create_directories(folder_);
    for (const char* name : {"a1", "a2", "b1"}) std::ofstream(folder_ + "/" + name + ".toml") << "seed = 1\n";
    fs::create_symlink(file_.path(), folder_ + "/index.toml");
  }
  std::string name() const override { return "series"; }
  std::string origin() const override { return folder_ + "/index.toml"; }
  std::string make(Dice& dice) override {
    std::string text =
        "[[series]]\nname = \"series-a\"\ntitle = \"First\"\nabout = \"\"\"Long\ntext\"\"\"\nrecipes = [\"a1\", "
        "\"a2\"]\n\n"
        "[[series]]\nname = \"series-b\"\nrecipes = [\"b1\"]\n";
    damage_text(text, dice, words_);
    return text;
  }
  void read(const std::string& input) override {
    file_.set(input);
    const SeriesIndex index = load_series_index(origin());
    for (const std::string& recipe : index.all_recipes()) {
      if (recipe.find('/') != std::string::npos) throw std::logic_error("a name leads out of its folder");
    }
  }

 private:
  const std::vector<std::string> words_ = toml_words();
  const std::string folder_;
  MemoryFile file_;
};

// The history of a run: invalid lines are skipped with a warning, which counts as a rejection.
class MetricsTarget : public Target {
 public:
  explicit MetricsTarget(const std::string& scratch) : folder_(scratch + "/run") {
    fs::create_directories(folder_);
    // A short file: it is read with every input, and is not damaged itself.
    std::ofstream(folder_ + "/config.toml") << "title = \"a run\"\n[model]\nlayers = 2\n";
    fs::create_symlink(file_.path(), folder_ + "/metrics.jsonl");
    fs::create_symlink(file_.path(), folder_ + "/timing.jsonl");
  }
  std::string name() const override { return "metrics"; }
  std::string origin() const override { return folder_; }
  std::string make(Dice& dice) override {
    const std::string layer =
        R"({"layer":0,"count":{"gini":0.1,"entropy":3.2,"effective_experts":9,"experts_used":8,"max_over_mean_load":2},)"
        R"("mass":{"gini":0.1,"entropy":3.1},"experts_used_this_epoch":8,"key_moved":{"mean":0.1,"max":0.2}})";
    std::string text =
        R"({"kind":"train","step":50,"epoch":0.5,"loss":2.5,"lr":0.001,"layers":[{"gini":0.1,"entropy":3.2},)"
        R"({"gini":0.2,"entropy":3}]})"
        "\n"
        R"({"kind":"eval","step":100,"epoch":1,"loss":2.25,"perplexity":9.5,"bits_per_byte":1.1,"documents":10,)"
        R"("tokens":100,"padded_loss":2,"layers":[)" +
        layer + "," + layer +
        "]}\n"
        R"({"kind":"epoch","step":100,"epoch":1,"train_loss":2.4})"
        "\n"
        R"({"from_step":0,"to_step":100,"seconds":2.5,"real_tokens":10,"slots":20,"operations":1e9,"device":"cpu"})"
        "\n";
    if (dice.one_in(2)) {
      damage_text(text, dice, {"{", "}", "[", "\"kind\":", "\"layers\":", "null", "-1", "1e300"});
      return text;
    }
    std::string out;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      nlohmann::json line = nlohmann::json::parse(text.substr(begin, end - begin));
      if (dice.one_in(2)) damage_json(line, dice);
      out += written(line) + "\n";
      begin = end + 1;
    }
    return out;
  }
  void read(const std::string& input) override {
    file_.set(input);
    // Each of the two files has two of four lines, so both always warn; other faults are still detected.
    std::string wrong;
    const Log log([&](const LogMessage& message) {
      if (message.text.find("kind is missing") == std::string::npos &&
          message.text.find("seconds is missing") == std::string::npos)
        wrong = message.text;
    });
    RunListEntry found;
    found.folder = folder_;
    const RunHistory history = read_history(found, log);
    for (const char* number : {"total_parameters_m", "step_seconds", "steps", "experts_used", "best_gini", "gini_peak"})
      history.measured_once(number);
    for (const char* measure : {"train", "val", "gini", "dead", "temperature"}) history.measured(measure, 1);
    if (!wrong.empty()) throw Error(Fault::input, Code::run_unlisted, wrong);
  }

 private:
  const std::string folder_;
  MemoryFile file_;
};

// data.json of a run.
class RunDataTarget : public Target {
 public:
  explicit RunDataTarget(const std::string& scratch) : paths_{scratch + "/data-run"} {
    fs::create_directories(paths_.folder);
    fs::create_symlink(file_.path(), paths_.data());
  }
  std::string name() const override { return "run-data"; }
  std::string origin() const override { return paths_.data(); }
  std::string make(Dice& dice) override {
    const nlohmann::json use{{"documents", 3}, {"tokens", 90}, {"used", 80}, {"cut", 10}, {"sequences", 4}};
    nlohmann::json data{{"train", use}, {"valid", use}};
    if (dice.one_in(4)) {
      std::string text = data.dump(1);
      damage_text(text, dice, {"{", "}", "\"train\":", "null", "-1", "1e300"});
      return text;
    }
    damage_json(data, dice);
    return written(data);
  }
  void read(const std::string& input) override {
    file_.set(input);
    read_run_data(paths_);
  }

 private:
  RunPaths paths_;
  MemoryFile file_;
};

class CheckpointTarget : public Target {
 public:
  explicit CheckpointTarget(const std::string& scratch) : folder_(scratch + "/damaged") {
    Recipe recipe = load_recipe(recipes + "tiny.toml", {"model.d_model=8", "model.heads=2", "model.layers=1",
                                                        "some.experts=4", "some.d_ffn=6", "some.top_k=2"});
    recipe.model.vocab = 12;
    ctx_ = make_context("cpu", "fp32");
    model_ = std::make_unique<Model>(ctx_, recipe.model, true);
    const std::string run = scratch + "/whole";
    TrainState state;
    state.step = 7;
    state.epoch_loss = 0.5;
    state.best_step = 5;
    state.recipe = {{"train.lr", "0.1"}, {"title", "\"a\""}};
    save_checkpoint(run, identity_, 7, *model_, to_json(state));
    for (const char* name : {"model", "optimizer"})
      seeds_.push_back(read_whole(run + "/checkpoints/step-7/" + name + ".safetensors"));
    for (int i = 0; i < 2; ++i) seeds_.push_back(of_earlier_version(seeds_[static_cast<std::size_t>(i)]));
    fs::create_directories(folder_);
    fs::create_symlink(files_[0].path(), folder_ + "/model.safetensors");
    fs::create_symlink(files_[1].path(), folder_ + "/optimizer.safetensors");
  }
  std::string name() const override { return "checkpoint"; }
  std::string origin() const override { return folder_; }
  std::string make(Dice& dice) override {
    const std::size_t which = dice.below(2) + (dice.one_in(4) ? 0 : 2);
    return static_cast<char>('0' + which) + damage_safetensors(seeds_[which], dice);
  }
  void read(const std::string& input) override {
    const std::size_t seed = input.empty() ? 0 : static_cast<unsigned char>(input[0] - '0') % 4, which = seed % 2;
    files_[which].set(std::string_view(input).substr(std::min<std::size_t>(1, input.size())));
    files_[1 - which].set(seeds_[seed - which + (1 - which)]);
    const RunIdentity& identity = seed < 2 ? identity_ : earlier_;
    train_state_from(load_checkpoint({7, folder_}, identity, *model_, true), folder_);
  }

 private:
  // A file as earlier versions wrote it: it names neither its run nor its companion, so damage gets past those checks.
  static std::string of_earlier_version(const std::string& file) {
    FileParts parts = take_apart(file);
    for (const char* key : {"checksum", "checksums", "other_file", "run"}) parts.header["__metadata__"].erase(key);
    return put_together(parts);
  }

  const std::string folder_;
  const RunIdentity identity_{"0123456789abcdef", "fedcba9876543210"}, earlier_{"", "fedcba9876543210"};
  std::shared_ptr<Context> ctx_;
  std::unique_ptr<Model> model_;
  std::vector<std::string> seeds_;
  MemoryFile files_[2];
};

class FixtureTarget : public Target {
 public:
  FixtureTarget() {
    for (const char* folder : {"fixtures", "fixtures-next"}) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(source_folder() + "/tests/reference/" + folder, error)) {
        if (entry.path().extension() == ".safetensors") paths_.push_back(entry.path().string());
      }
    }
    // The smallest files first: half of them take a tenth of the total time.
    std::sort(paths_.begin(), paths_.end(), [](const std::string& a, const std::string& b) {
      return std::pair(fs::file_size(a), a) < std::pair(fs::file_size(b), b);
    });
    for (const std::string& path : paths_) seeds_.push_back(read_whole(path));
    if (seeds_.empty()) throw std::logic_error("there are no fixtures to begin from");
  }
  std::string name() const override { return "fixture"; }
  std::string origin() const override { return file_.path(); }
  std::string make(Dice& dice) override {
    const std::size_t some = dice.one_in(32) ? seeds_.size() : std::min<std::size_t>(seeds_.size(), 32);
    return damage_safetensors(seeds_[dice.below(some)], dice);
  }
  void read(const std::string& input) override {
    file_.set(input);
    VerifyOptions options;
    options.threads = 1;
    options.precision = input.size() % 2 == 0 ? Precision::f64 : Precision::fp32;
    options.threads = 1;  // starting threads would take longer than what they do
    verify_fixture(file_.path(), options);
  }

 private:
  std::vector<std::string> paths_, seeds_;
  MemoryFile file_;
};

}  // namespace

void add_run_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder) {
  targets.push_back(std::make_unique<RecipeTarget>(false));
  targets.push_back(std::make_unique<RecipeTarget>(true));
  targets.push_back(std::make_unique<SeriesTarget>(scratch_folder));
  targets.push_back(std::make_unique<MetricsTarget>(scratch_folder));
  targets.push_back(std::make_unique<RunDataTarget>(scratch_folder));
  targets.push_back(std::make_unique<CheckpointTarget>(scratch_folder));
  targets.push_back(std::make_unique<FixtureTarget>());
}

}  // namespace some::fuzz
