// Recipes: reading, overrides, `base`, messages, writing back, and the parameter counts of every published run.
#include "recipe/recipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/files/files.h"
#include "expect_error.h"
#include "recipe/schema.h"

namespace some {
namespace {

namespace fs = std::filesystem;

std::optional<Error> error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return error_in([&] { parse_recipe(text, "some.toml", overrides); });
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("some-recipe-test-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(Recipe, EmptyTextGivesDefaultsOfA4) {
  const Recipe recipe = parse_recipe("", "x/empty.toml", {});
  EXPECT_EQ(recipe.name, "empty");
  EXPECT_EQ(recipe.model.d_model, 512);
  EXPECT_EQ(recipe.model.layers, 10);
  EXPECT_EQ(recipe.model.vocab, 8192);
  EXPECT_EQ(recipe.data.train, "builtin:stories");
  EXPECT_FALSE(recipe.data.count_pads);
  EXPECT_FALSE(recipe.published.has_value());
}

// A user who shortens a run need not know its warm-up.
TEST(Recipe, AWarmUpThatIsTooLongIsShortened) {
  const std::string text = "[train]\nmax_steps = 400\nwarmup_steps = 50\n";
  const Recipe shorter = parse_recipe(text, "some.toml", {"train.max_steps=20"});
  EXPECT_EQ(shorter.train.warmup_steps, 2);
  ASSERT_EQ(shorter.notes.size(), 1U);
  EXPECT_NE(shorter.notes[0].find("train.warmup_steps is 2 instead of 50"), std::string::npos) << shorter.notes[0];
  EXPECT_EQ(parse_recipe(text, "some.toml", {"train.max_steps=4"}).train.warmup_steps, 1);
  const Recipe same = parse_recipe(text, "some.toml", {"train.max_steps=50"});
  EXPECT_EQ(same.train.warmup_steps, 50);
  EXPECT_TRUE(same.notes.empty());
  // Contradictory numbers from one place are an error.
  EXPECT_TRUE(is_bad_input(error_of(text, {"train.max_steps=20", "train.warmup_steps=30"}), Code::setting_out_of_range,
                           {"train.warmup_steps", "30", "20"}));
  const Recipe stages =
      parse_recipe(text + "[[stage]]\n[[stage]]\ntrain.max_steps = 300\n", "some.toml", {"stage.2.train.max_steps=10"});
  EXPECT_EQ(stage_recipes(stages)[0].train.warmup_steps, 50);
  EXPECT_EQ(stage_recipes(stages)[1].train.warmup_steps, 1);
}

// The length of built-in text is arbitrary, so its limit does not apply to another text.
TEST(Recipe, ALimitForBuiltInTextDoesNotCutAnother) {
  const Folder folder;
  folder.write("base.toml", "[data]\ntrain = \"builtin:stories\"\ntrain_documents = 4800\nvalid_documents = 300\n");
  const auto read = [&](const std::string& text, const std::vector<std::string>& overrides) {
    return load_recipe(folder.write("mine.toml", text), overrides);
  };
  const std::string base = "base = \"base.toml\"\n";
  const Recipe own = read(base, {"data.train=mine.txt"});
  EXPECT_EQ(own.data.train_documents, 0);
  EXPECT_EQ(own.data.valid_documents, 300);  // enough to measure a loss; `some train` reports the difference
  ASSERT_EQ(own.notes.size(), 1U);
  EXPECT_NE(own.notes[0].find("4800"), std::string::npos) << own.notes[0];
  EXPECT_EQ(read(base + "[data]\ntrain = \"mine.txt\"\n", {}).data.train_documents, 0);
  // Limits stay for other built-in text, and if they were set for the text itself.
  EXPECT_EQ(read(base, {"data.train=builtin:nature"}).data.train_documents, 4800);
  EXPECT_EQ(read(base, {"data.train=mine.txt", "data.train_documents=7"}).data.train_documents, 7);
  EXPECT_EQ(read(base, {"data.train_documents=7", "data.train=mine.txt"}).data.train_documents, 7);
  EXPECT_EQ(read(base + "[data]\ntrain = \"mine.txt\"\ntrain_documents = 9\n", {}).data.train_documents, 9);
  EXPECT_EQ(override_recipe(read(base, {}), "x", {"data.train=mine.txt"}).data.train_documents, 0);
  const Recipe stages =
      read(base + "[[stage]]\n[[stage]]\ndata.train = \"builtin:nature\"\n", {"stage.1.data.train=mine.txt"});
  EXPECT_EQ(stage_recipes(stages)[0].data.train_documents, 0);
  EXPECT_EQ(stage_recipes(stages)[1].data.train_documents, 4800);
}

TEST(Recipe, EveryKeyIsReadAndWrittenBack) {
  // Each key is set to another value, written, and read again. Some are valid only together with another key.
  const std::map<std::string, std::string> beside = {{"data.unit", "data.train=text.txt"},
                                                     {"some.output_proj_init", "some.output_proj=linear"},
                                                     {"model.conv", "some.input_proj=true"},
                                                     {"some.token_shift", "some.output_proj=modulated"},
                                                     {"some.use_library", "some.output_proj=modulated"}};
  for (const RecipeKey& key : recipe_keys()) {
    std::vector<std::string> settings;
    if (const auto found = beside.find(key.full_name()); found != beside.end()) settings = {found->second};
    const Recipe plain = parse_recipe("", "x.toml", settings);
    Recipe recipe = plain;
    const SettingValue before = key.get(recipe);
    SettingValue after = before;
    switch (key.kind) {
      case SettingKind::boolean: after = !std::get<bool>(before); break;
      case SettingKind::integer: after = std::max<std::int64_t>(std::get<std::int64_t>(before) * 2, 2); break;
      case SettingKind::number: after = 0.375; break;
      case SettingKind::text: after = std::string("a \"b\" \\ c"); break;
      case SettingKind::choice:
        after = std::get<std::string>(before) == key.choices[0] ? key.choices[1] : key.choices[0];
        break;
      case SettingKind::numbers: after = std::vector<double>{0.125, 0.5}; break;
      case SettingKind::integers: after = std::vector<double>{0, 1}; break;
      case SettingKind::layer_scale: after = std::vector<double>(10, 0.5); break;
      case SettingKind::anneal: after = Anneal{AnnealShape::cosine, 1.0, 0.25}; break;
    }
    key.set(recipe, after);
    recipe.model.vocab = recipe.data.vocab;
    recipe.model.seed = recipe.seed;
    const std::string text = write_recipe(recipe);
    const Recipe again = parse_recipe(text, "again.toml", {});
    EXPECT_EQ(key.write(key.get(again)), key.write(after)) << key.full_name();
    EXPECT_TRUE(write_recipe(again) == text) << key.full_name();
    // The same key as an override of the defaults.
    if (key.kind != SettingKind::layer_scale) {
      settings.push_back(key.full_name() + "=" + key.write(after));
      const Recipe overridden = parse_recipe("", "x.toml", settings);
      EXPECT_EQ(key.write(key.get(overridden)), key.write(after)) << key.full_name();
      const auto differences = recipe_differences(overridden, plain);
      if (key.name != "title") {
        ASSERT_EQ(differences.size(), 1U) << key.full_name();
        EXPECT_EQ(differences[0], key.full_name() + " = " + key.write(after) + " (" + key.write(before) + ")");
      }
    }
  }
}

// Overrides are appended to a stage's settings, in their own order.
TEST(Recipe, StagesAreWrittenInOneOrder) {
  const std::string path = SOME_SOURCE_DIR "/recipes/continual.toml";
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"stage.2.train.max_steps=1", "stage.2.train.lr=0.5", "stage.2.train.batch=2"},
        std::vector<std::string>{"stage.2.train.batch=2", "stage.2.train.lr=0.5", "stage.2.train.max_steps=1"}}) {
    const std::string text = write_recipe(load_recipe(path, overrides));
    EXPECT_EQ(write_recipe(parse_recipe(text, "written", {})), text);
  }
}

TEST(Recipe, WrittenFileCommentsEveryKey) {
  const std::string text = write_recipe(Recipe{});
  for (const RecipeKey& key : recipe_keys()) {
    EXPECT_NE(text.find("# " + key.meaning + "\n"), std::string::npos) << key.full_name();
    EXPECT_NE(text.find("\n" + key.name + " = "), std::string::npos) << key.full_name();
  }
}

TEST(Recipe, NumbersSurviveWriting) {
  Recipe recipe;
  recipe.train.lr = 0.1 + 0.2;
  recipe.train.eps = 1e-300;
  recipe.seed = 9007199254740993ULL;
  const Recipe again = parse_recipe(write_recipe(recipe), "x.toml", {});
  EXPECT_EQ(again.train.lr, recipe.train.lr);
  EXPECT_EQ(again.train.eps, recipe.train.eps);
  EXPECT_EQ(again.seed, recipe.seed);
  EXPECT_EQ(again.model.seed, recipe.seed);
}

TEST(Recipe, Overrides) {
  const Recipe recipe =
      parse_recipe("[train]\nepochs = 3\n", "x.toml",
                   {"train.max_steps=100", "some.top_k=8", "data.train=data/my stories.txt", "some.init=sparse",
                    "train.betas=[0.8, 0.9]", "some.beta_anneal={shape=\"linear\", start=1, end=0.1}", "train.lr=1e-3",
                    "data.valid=2024-01-01", "some.entropy_band=[0.5, 2.5]", "some.beta_layer_scale=0.5", "seed=7",
                    "some.top_k=2", "data.separator===="});
  EXPECT_EQ(recipe.train.epochs, 3);
  EXPECT_EQ(recipe.train.max_steps, 100);
  EXPECT_EQ(recipe.model.top_k, 2);  // the last one wins
  EXPECT_EQ(recipe.data.train, "data/my stories.txt");
  EXPECT_EQ(recipe.data.valid, "2024-01-01");
  EXPECT_EQ(recipe.data.separator, "===");
  EXPECT_EQ(recipe.model.init, "sparse");
  EXPECT_EQ(recipe.train.beta1, 0.8);
  EXPECT_EQ(recipe.model.keys.beta_anneal.shape, AnnealShape::linear);
  EXPECT_EQ(recipe.model.keys.beta_anneal.end, 0.1);
  EXPECT_EQ(recipe.model.entropy_low, 0.5);
  EXPECT_EQ(recipe.model.keys.beta_layer_scale, std::vector<double>(10, 0.5));
  EXPECT_EQ(recipe.model.seed, 7U);
}

TEST(Recipe, OneScaleFollowsTheNumberOfLayers) {
  const Recipe recipe = parse_recipe("[some]\nbeta_layer_scale = 0.5\n", "x.toml", {"model.layers=3"});
  EXPECT_EQ(recipe.model.keys.beta_layer_scale, (std::vector<double>{0.5, 0.5, 0.5}));
}

TEST(Recipe, MessagesSayWhatWhereAndWhatIsRight) {
  struct Case {
    const char* text;
    Code code;
    std::vector<std::string> values;
  };
  const std::vector<Case> cases = {
      {"[some]\ntopk = 3", Code::setting_unknown, {"some.toml:2", "some.topk", "some.top_k"}},
      {"[model]\n\nexperts = 3", Code::setting_unknown, {"some.toml:3", "model.experts", "some.experts"}},
      {"[sone]\ntop_k = 3", Code::setting_unknown, {"some.toml:1", "sone", "[some]"}},
      {"sed = 3", Code::setting_unknown, {"some.toml:1", "sed", "seed"}},
      {"[model]\nwhatever = 3", Code::setting_unknown, {"some.toml:2", "model.whatever"}},
      {"[train]\nlr = \"fast\"", Code::setting_type, {"some.toml:2", "train.lr"}},
      {"[train]\nlr = 0", Code::setting_out_of_range, {"some.toml:2", "train.lr"}},
      {"[train]\nlr = nan", Code::setting_out_of_range, {"some.toml:2", "train.lr"}},
      {"[train]\nepochs = 2.0", Code::setting_type, {"some.toml:2", "train.epochs"}},
      {"[train]\nbatch = 0", Code::setting_out_of_range, {"some.toml:2", "train.batch"}},
      {"[train]\nbatch = 5000000000", Code::setting_out_of_range, {"some.toml:2", "train.batch"}},
      {"[train]\nbetas = [0.9, 1.0]", Code::setting_out_of_range, {"some.toml:2", "train.betas"}},
      {"[train]\nbetas = [0.9]", Code::setting_type, {"some.toml:2", "train.betas"}},
      {"[train]\ndevice = \"gpu\"", Code::setting_out_of_range, {"some.toml:2", "train.device"}},
      {"[train]\nprecision = \"fp8\"", Code::setting_out_of_range, {"some.toml:2", "train.precision"}},
      {"[model]\nseq_len = 0", Code::setting_out_of_range, {"some.toml:2", "model.seq_len"}},
      {"[model]\ncausal = 1", Code::setting_type, {"some.toml:2", "model.causal"}},
      {"[model]\nnorm = 2020-01-01", Code::setting_type, {"some.toml:2", "model.norm"}},
      {"model = 3", Code::setting_type, {"some.toml:1", "model"}},
      {"[model]\nheads = 7", Code::setting_out_of_range, {"some.toml:2", "model.heads", "7", "512"}},
      {"[model]\nd_model = 500", Code::setting_out_of_range, {"some.toml", "model.heads", "8", "500"}},
      {"[model]\nd_model = 63\nheads = 7", Code::setting_out_of_range, {"some.toml:2", "model.d_model", "63"}},
      {"[model]\nd_model = 24\nposition = \"rope\"",
       Code::setting_out_of_range,
       {"some.toml:3", "model.position", "3"}},
      {"[some]\ntop_k = 65", Code::setting_out_of_range, {"some.toml:2", "some.top_k", "65", "64"}},
      {"[some]\nbeta_layer_scale = [1, 0.5]",
       Code::setting_out_of_range,
       {"some.toml:2", "some.beta_layer_scale", "2", "10"}},
      {"[some]\nbeta_layer_scale = -1", Code::setting_out_of_range, {"some.toml:2", "some.beta_layer_scale"}},
      {"[some]\nfrozen_layers = [3, 10]",
       Code::layer_out_of_range,
       {"some.toml:2", "some.frozen_layers", "10", "10", "9"}},
      {"[some]\nfrozen_layers = [1.5]", Code::setting_type, {"some.toml:2", "some.frozen_layers"}},
      {"[some]\ntopk_warmup = 1.5", Code::setting_out_of_range, {"some.toml:2", "some.topk_warmup"}},
      {"[some]\nentropy_band = [2.5, 1.5]",
       Code::setting_out_of_range,
       {"some.toml:2", "some.entropy_band", "2.5", "1.5"}},
      {"[some]\nentropy_band = [1.5, 2.5]",
       Code::setting_out_of_range,
       {"some.toml:2", "some.entropy_band", "1.5", "2.5", "4"}},
      {"[some]\nbeta_anneal = {shap = \"linear\"}",
       Code::setting_unknown,
       {"some.toml:2", "some.beta_anneal.shap", "some.beta_anneal", "shape"}},
      {"[some]\nbeta_anneal = {shape = \"exponential\", start = 1, end = 0}",
       Code::setting_out_of_range,
       {"some.toml:2", "some.beta_anneal"}},
      {"[some]\nbeta_anneal = {start = 0.5, end = 0}",
       Code::setting_conflict,
       {"some.toml:2", "some.beta_anneal", "0.5", "0"}},
      {"[some]\nrespawn_threshold = 1.5", Code::setting_out_of_range, {"some.toml:2", "some.respawn_threshold", "1.5"}},
      {"[some]\ntraining = \"lora\"\nlora_rank = 600",
       Code::setting_out_of_range,
       {"some.toml:3", "some.lora_rank", "600", "512"}},
      {"[some]\ntemperature = \"learned\"\ntrain_temp_end = 1.0",
       Code::setting_conflict,
       {"some.toml:3", "some.train_temp_end", "1"}},
      {"[data]\nvocab = 100", Code::setting_out_of_range, {"some.toml:2", "data.vocab", "100"}},
      {"[data]\nvalid_share = 0", Code::setting_out_of_range, {"some.toml:2", "data.valid_share"}},
      {"[data]\ntrain = \"\"", Code::setting_out_of_range, {"some.toml:2", "data.train"}},
      {"[train]\nmax_steps = 10\nwarmup_steps = 20",
       Code::setting_out_of_range,
       {"some.toml:3", "train.warmup_steps", "20", "10"}},
      {"base = 3", Code::setting_type, {"some.toml:1", "base"}},
      {"base = \"nothing.toml\"", Code::recipe_base_invalid, {"some.toml:1", "base", "nothing.toml", "nothing.toml"}},
      {"[published]\nvall = [1]", Code::setting_unknown, {"some.toml:2", "vall", "val"}},
      {"[published]\nval = [1, 2]\ntrain = [1]", Code::recipe_invalid, {"some.toml", "3", "train", "1", "2"}},
      {"[published]\nval = 1", Code::setting_type, {"some.toml:2", "val"}},
      {"[published]\nsteps = \"x\"", Code::setting_type, {"some.toml:2", "steps"}},
  };
  for (const auto& [text, code, values] : cases) EXPECT_TRUE(is_bad_input(error_of(text), code, values)) << text;
  // Invalid TOML is reported with its line.
  EXPECT_TRUE(is_bad_input(error_of("[train]\nlr = \n"), Code::toml_syntax, {"some.toml", "2"}));
  EXPECT_TRUE(is_bad_input(error_of("a = 1\na = 2\n"), Code::toml_syntax, {"some.toml", "2"}));
  // Names and values without quotes must be ASCII. Strings and comments may contain anything.
  EXPECT_TRUE(is_bad_input(error_of("\nm\u00F6del = 1\n"), Code::toml_syntax, {"some.toml", "2"}));
  for (const std::string value : {"-\"\u00E9\"", "1_\"\u00E9\"", "1979-01-01\"\u00E9\""})
    EXPECT_TRUE(is_bad_input(error_of("title = " + value + "\n"), Code::toml_syntax, {"some.toml", "1"})) << value;
  EXPECT_FALSE(error_of("# \u00F6\ntitle = \"M\u00F6del '\" # \u00F6\n"));
  EXPECT_FALSE(error_of("\xEF\xBB\xBFtitle = \"\"\"\n\u00F6\"\" \\\"\"\"\"\n"));
  EXPECT_TRUE(is_bad_input(error_of("\"" + std::string(300, 'x') + "\" = 1"), Code::setting_unknown, {"1", "300"}));
}

TEST(Recipe, MessagesOfOverrides) {
  const auto refused = [](const std::vector<std::string>& overrides, Code code, std::vector<std::string> values) {
    values.insert(values.begin(), "override " + overrides.back());
    EXPECT_TRUE(is_bad_input(error_of("", overrides), code, values));
  };
  refused({"some.topk=3"}, Code::setting_unknown, {"some.topk", "some.top_k"});
  refused({"train.lr=fast"}, Code::setting_type, {"train.lr"});
  refused({"train.lr"}, Code::setting_syntax, {});
  refused({"=3"}, Code::setting_syntax, {});
  refused({"base=a4.toml"}, Code::setting_misplaced, {"base"});
  refused({"model.heads=7"}, Code::setting_out_of_range, {"model.heads", "7", "512"});
  refused({"memory.slots=1000", "memory.partitions=7"}, Code::setting_out_of_range, {"memory.partitions", "1000", "7"});
  // A value cannot smuggle in a second key.
  EXPECT_TRUE(is_bad_input(error_of("", {"train.epochs=1\nmax_steps = 3"}), Code::setting_type, {"train.epochs"}));
}

TEST(Recipe, DenseAndNoneIgnoreSettingsOfExperts) {
  EXPECT_FALSE(error_of("[model]\nffn = \"none\"\n[some]\nexperts = 2\n"));
  EXPECT_TRUE(is_bad_input(error_of("[model]\nffn = \"dense\"\ndense_mult = 0.0001\n"), Code::setting_out_of_range,
                           {"some.toml:3", "model.dense_mult", "0.0001", "0"}));
}

TEST(Recipe, BaseIsBuiltUponAndCyclesAreFound) {
  const Folder folder;
  folder.write("a.toml", "title = \"first\"\nseed = 3\n[some]\ntop_k = 2\nexperts = 16\n[published]\nval = [1.0]\n");
  folder.write("deep/b.toml", "# second\nbase = \"../a.toml\"\n[some]\ntop_k = 3\n");
  const std::string last = folder.write("deep/c.toml", "base = \"b.toml\"\n[train]\nlr = 1e-3\n");
  const Recipe recipe = load_recipe(last, {"some.d_ffn=64"});
  EXPECT_EQ(recipe.name, "c");
  EXPECT_EQ(recipe.title, "");
  EXPECT_FALSE(recipe.published.has_value()) << "published numbers belong to one run";
  EXPECT_EQ(recipe.seed, 3U);
  EXPECT_EQ(recipe.model.experts, 16);
  EXPECT_EQ(recipe.model.top_k, 3);
  EXPECT_EQ(recipe.model.d_ffn, 64);
  EXPECT_EQ(load_recipe((folder.path() / "deep/b.toml").string(), {}).title, "second");
  EXPECT_EQ(recipe_differences(recipe, load_recipe((folder.path() / "a.toml").string(), {})),
            (std::vector<std::string>{"some.d_ffn = 64 (1024)", "some.top_k = 3 (2)", "train.lr = 0.001 (0.0006)"}));

  // A fault in the base is reported with the base's file and line.
  folder.write("bad.toml", "\n[some]\ntop_k = \"two\"\n");
  const std::string on_bad = folder.write("on-bad.toml", "base = \"bad.toml\"\n");
  EXPECT_ERROR(load_recipe(on_bad, {}), Code::setting_type, (folder.path() / "bad.toml").string() + ":3", "some.top_k");

  const std::string round = folder.write("x.toml", "base = \"y.toml\"\n");
  folder.write("y.toml", "\nbase = \"./deep/../x.toml\"\n");
  EXPECT_ERROR(load_recipe(round, {}), Code::recipe_base_invalid, (folder.path() / "y.toml").string() + ":2", "base");
}

TEST(Recipe, MissingRecipeIsBadInput) {
  const Folder folder;
  const std::string none = (folder.path() / "none.toml").string();
  EXPECT_ERROR(load_recipe(none, {}), Code::recipe_not_found, none);
  EXPECT_ERROR(load_recipe(folder.path().string(), {}), Code::file_not_regular, folder.path().string());
}

TEST(Recipe, DataPathIsLookedUpBesideTheRecipe) {
  const Folder folder;
  folder.write("texts/train.txt", "one\n");
  const std::string base =
      folder.write("recipes/base.toml", "[data]\ntrain = \"../texts/train.txt\"\nvalid = \"not/there.txt\"\n");
  const std::string other = folder.write("recipes/deep/other.toml", "base = \"../base.toml\"\n");
  for (const std::string& path : {base, other}) {
    const Recipe recipe = load_recipe(path, {});
    EXPECT_EQ(fs::path(recipe.data.train), folder.path() / "texts/train.txt");
    EXPECT_EQ(recipe.data.valid, "not/there.txt") << "what is nowhere stays as it was written";
  }
  EXPECT_EQ(load_recipe(base, {"data.train=texts/train.txt"}).data.train, "texts/train.txt");
}

TEST(Recipe, PublishedNumbers) {
  const Recipe recipe = parse_recipe(
      "[published]\nsource = \"a report\"\ntotal_parameters_m = 701.50\nepochs = [1, 4]\nval = [0.9, 0.7]\ngini = "
      "[nan, 0.8]\n",
      "x.toml", {});
  ASSERT_TRUE(recipe.published.has_value());
  EXPECT_EQ(recipe.published->source, "a report");
  EXPECT_EQ(recipe.published->values.at("total_parameters_m"), 701.5);
  ASSERT_EQ(recipe.published->epochs.size(), 2U);
  EXPECT_EQ(recipe.published->epochs[0].epoch, 1);
  EXPECT_EQ(recipe.published->epochs[1].epoch, 4);
  EXPECT_EQ(recipe.published->epochs[0].values.count("gini"), 0U);
  EXPECT_EQ(recipe.published->epochs[1].values.at("gini"), 0.8);
  const Recipe again = parse_recipe(write_recipe(recipe), "y.toml", {});
  EXPECT_TRUE(write_recipe(again) == write_recipe(recipe));
  EXPECT_EQ(again.published->epochs[1].epoch, 4);
}

// -- Parameter counts (spec 2)
// ------------------------------------------------------------------------------------------------------

ModelConfig shape(int d, int layers, int experts, int d_ffn, RouterKind router, int vocab = 8192) {
  ModelConfig config;
  config.d_model = d;
  config.layers = layers;
  config.experts = experts;
  config.d_ffn = d_ffn;
  config.router = router;
  config.vocab = vocab;
  return config;
}

std::string millions(std::int64_t count) { return fmt::format("{:.2f}", static_cast<double>(count) / 1e6); }

TEST(Parameters, EveryPrintedCount) {
  const auto linear = RouterKind::linear, mlp = RouterKind::mlp;
  struct Case {
    const char* run;
    ModelConfig config;
    const char *total, *trainable;
  };
  ModelConfig v5_mlp = shape(512, 10, 128, 2048, mlp);
  v5_mlp.router_mult = 1.0;
  const Case cases[] = {
      {"v1-1, v2-2, 1-V3", shape(512, 8, 256, 1536, linear), "3244.34", "18.92"},
      {"v2-1", shape(384, 6, 128, 1024, linear), "615.81", "10.74"},
      {"v2-pro", shape(384, 10, 128, 1024, linear), "1022.14", "13.71"},
      {"1-V1, mvp-v2", shape(256, 4, 32, 1024, linear), "72.80", "5.52"},
      {"1-V2", shape(384, 6, 64, 1024, linear), "313.27", "10.74"},
      {"1-V4", shape(384, 6, 64, 1024, linear, 16384), "319.57", "17.04"},
      {"1-V5", shape(384, 6, 256, 1536, linear), "1825.63", "10.74"},
      {"1-V6", shape(512, 10, 64, 1024, linear), "693.62", "21.55"},
      {"2-B1", shape(384, 8, 128, 1536, linear), "1222.15", "12.23"},
      {"2-B2, mvp-v6", shape(384, 10, 128, 1536, linear), "1526.11", "13.71"},
      {"2-C1, comparison", shape(512, 8, 128, 1536, linear), "1631.63", "18.92"},
      {"2-C2, v3.5", shape(768, 8, 128, 1536, linear), "2454.52", "36.24"},
      {"3-V1", shape(512, 10, 128, 1536, linear), "2037.44", "21.55"},
      {"3-V2, 3-V3", shape(512, 10, 512, 512, linear), "2711.15", "21.55"},
      {"mvp-v3, mvp-v5", shape(384, 8, 32, 1024, linear), "213.91", "12.23"},
      {"mvp-v4", shape(384, 8, 64, 1536, linear), "617.19", "12.23"},
      {"A1", shape(384, 8, 64, 1024, mlp), "419.14", "15.77"},
      {"A2", shape(512, 8, 64, 1024, mlp), "562.88", "25.22"},
      {"A3", shape(384, 10, 64, 1024, mlp), "522.36", "18.14"},
      {"A4, C1", shape(512, 10, 64, 1024, mlp), "701.50", "29.42"},
      {"A5", shape(384, 12, 64, 1024, mlp), "625.57", "20.51"},
      {"A6", shape(512, 16, 64, 1024, mlp), "1117.36", "42.04"},
      {"B1", shape(512, 10, 128, 1024, mlp), "1373.57", "29.42"},
      {"B2, C2", shape(512, 10, 256, 1024, mlp), "2717.71", "29.42"},
      {"B3, C3", shape(512, 10, 512, 1024, mlp), "5406.00", "29.42"},
      {"v5 linear", shape(512, 10, 128, 2048, linear), "2709.18", "21.55"},
      {"v5 mlp", v5_mlp, "2711.81", "24.18"},
      {"v6, v7", shape(512, 8, 256, 1024, mlp), "2175.85", "25.22"},
  };
  for (const Case& c : cases) {
    const ParameterCounts counts = count_parameters(c.config);
    EXPECT_EQ(millions(counts.total), c.total) << c.run;
    EXPECT_EQ(millions(counts.trainable), c.trainable) << c.run;
  }
  ModelConfig dense = shape(512, 8, 1, 1, linear);
  dense.ffn = Ffn::dense;
  EXPECT_EQ(millions(count_parameters(dense).total), "33.62");
  EXPECT_EQ(count_parameters(dense).trainable, count_parameters(dense).total);
}

TEST(Parameters, WhatEachSettingAdds) {
  ModelConfig config = shape(8, 2, 4, 6, RouterKind::mlp, 32);
  const ParameterCounts plain = count_parameters(config);
  const auto with = [&](auto change) {
    ModelConfig changed = config;
    change(changed);
    const ParameterCounts counts = count_parameters(changed);
    return std::pair<std::int64_t, std::int64_t>(counts.total - plain.total, counts.trainable - plain.trainable);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(with([](ModelConfig& c) { c.norm = Norm::pre; }), Pair(16, 16));
  EXPECT_EQ(with([](ModelConfig& c) { c.temperature = Temperature::learned; }), Pair(2, 2));
  EXPECT_EQ(with([](ModelConfig& c) { c.input_proj = true; }), Pair(2 * 64, 2 * 64));
  // The router's last layer has 3 outputs instead of 8.
  EXPECT_EQ(with([](ModelConfig& c) { c.query_dim = 3; }), Pair(-2 * 5 * 17, -2 * 5 * 17));
  EXPECT_EQ(with([](ModelConfig& c) { c.output_proj = OutputProj::linear; }), Pair(2 * 64, 2 * 64));
  // features: a trained d x f projection; experts lose d x f and their second bias of d.
  EXPECT_EQ(with([](ModelConfig& c) { c.output_proj = OutputProj::features; }),
            Pair(2 * 48 - 2 * 4 * (48 + 8), 2 * 48));
  // modulated: a hidden layer of f with its bias, its output projection, gains; experts as with features, or none.
  constexpr std::int64_t modulated = 2 * (48 + 6 + 48 + 4 * 6);
  EXPECT_EQ(with([](ModelConfig& c) { c.output_proj = OutputProj::modulated; }),
            Pair(modulated - 2 * 4 * (48 + 8), modulated));
  EXPECT_EQ(with([](ModelConfig& c) { c.output_proj = OutputProj::modulated, c.use_library = false; }),
            Pair(modulated - 2 * 4 * (48 + 6 + 48 + 8), modulated));
  EXPECT_EQ(with([](ModelConfig& c) { c.input_proj = true, c.conv = 3; }), Pair(2 * (64 + 24), 2 * (64 + 24)));
  EXPECT_EQ(with([](ModelConfig& c) {
              c.training = ExpertTraining::lora;
              c.lora_rank = 3;
            }),
            Pair(2 * 4 * 2 * 3 * 14, 2 * 4 * 2 * 3 * 14));
  EXPECT_EQ(with([](ModelConfig& c) { c.training = ExpertTraining::full; }), Pair(0, 2 * 4 * 2 * 48));
  EXPECT_EQ(with([](ModelConfig& c) { c.ffn = Ffn::none; }).second, -2 * (2 * 16 * 8 + 16 + 8));
  EXPECT_EQ(with([](ModelConfig& c) {  // no second norm, because no block follows it
              c.ffn = Ffn::none;
              c.norm = Norm::pre;
            })
                .second,
            16 - 2 * (2 * 16 * 8 + 16 + 8) - 2 * 16);
  EXPECT_EQ(with([](ModelConfig& c) {  // a dense block of the router's shape has as many parameters as the router
              c.ffn = Ffn::dense;
              c.dense_mult = 2.0;
            })
                .second,
            0);
}

TEST(Schema, KnowsSettingsOfTheMachine) {
  for (const char* own : {"train.device=cuda:1", "train.threads = 2 (4)", "train.expert_ranks", "train.precision=bf16"})
    EXPECT_TRUE(is_machine_setting(own)) << own;
  for (const char* other : {"train.lr=0.1", "train.device_name=x", "stage.1.train.lr = 1", "title", ""})
    EXPECT_FALSE(is_machine_setting(other)) << other;
  EXPECT_TRUE(is_left_out_of_comparisons("train.threads"));
  EXPECT_TRUE(is_left_out_of_comparisons("train.keep_checkpoints=3"));
  EXPECT_FALSE(is_left_out_of_comparisons("train.precision"));
}

}  // namespace
}  // namespace some
