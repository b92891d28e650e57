// Recipes: reading, overrides, `base`, messages, writing back, and the parameter counts of every published run.
#include "recipe/recipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/error.h"
#include "core/files.h"
#include "recipe/schema.h"

namespace some {
namespace {

namespace fs = std::filesystem;

std::string message_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_recipe(text, "some.toml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::input);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
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

TEST(Recipe, EveryKeyIsReadAndWrittenBack) {
  // Each key is set to a value unlike its default, written, and read again. Some make sense only beside another.
  const std::map<std::string, std::string> beside = {{"data.unit", "data.train=text.txt"},
                                                     {"some.readout_init", "some.readout=linear"},
                                                     {"model.look_back", "some.readin=true"},
                                                     {"some.listen", "some.readout=modulated"},
                                                     {"some.use_library", "some.readout=modulated"}};
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
  EXPECT_EQ(recipe.model.top_k, 2);  // the last one holds
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
  const std::pair<const char*, const char*> cases[] = {
      {"[some]\ntopk = 3", "some.toml:2: unknown key some.topk; did you mean some.top_k?"},
      {"[model]\n\nexperts = 3", "some.toml:3: unknown key model.experts; did you mean some.experts?"},
      {"[sone]\ntop_k = 3", "some.toml:1: unknown table [sone]; did you mean [some]?"},
      {"sed = 3", "some.toml:1: unknown key sed; did you mean seed?"},
      {"[model]\nwhatever = 3", "some.toml:2: unknown key model.whatever; recipes/default.toml has every key"},
      {"[train]\nlr = \"fast\"", "some.toml:2: train.lr: wants a number above 0, not the text \"fast\""},
      {"[train]\nlr = 0", "some.toml:2: train.lr: wants a number above 0, not the whole number 0"},
      {"[train]\nlr = nan", "some.toml:2: train.lr: wants a number above 0, not the number nan"},
      {"[train]\nepochs = 2.0",
       "some.toml:2: train.epochs: wants a whole number from 1 to 1000000000, not the number 2.0"},
      {"[train]\nbatch = 0",
       "some.toml:2: train.batch: wants a whole number from 1 to 1048576, not the whole number 0"},
      {"[train]\nbatch = 5000000000",
       "some.toml:2: train.batch: wants a whole number from 1 to 1048576, not the whole number 5000000000"},
      {"[train]\nbetas = [0.9, 1.0]",
       "some.toml:2: train.betas: wants a list of two numbers, each of at least 0 and below 1, not the number 1.0"},
      {"[train]\nbetas = [0.9]",
       "some.toml:2: train.betas: wants a list of two numbers, each of at least 0 and below 1, not a list of 1 value"},
      {"[train]\ndevice = \"gpu\"",
       "some.toml:2: train.device: wants \"auto\", \"cpu\", \"cuda\" or \"cuda:N\", not the text \"gpu\""},
      {"[train]\nprecision = \"fp8\"",
       "some.toml:2: train.precision: wants \"auto\", \"fp32\", \"bf16\" or \"f64\", not the text \"fp8\""},
      {"[model]\nseq_len = 0",
       "some.toml:2: model.seq_len: wants a whole number from 2 to 1048576, not the whole number 0"},
      {"[model]\ncausal = 1", "some.toml:2: model.causal: wants true or false, not the whole number 1"},
      {"[model]\nnorm = 2020-01-01", "some.toml:2: model.norm: wants \"post\" or \"pre\", not a date or time"},
      {"model = 3",
       "some.toml:1: model is a table: its keys are written under [model], or as model.KEY=VALUE on the command line"},
      {"[model]\nheads = 7", "some.toml:2: model.heads = 7: must divide model.d_model = 512"},
      {"[model]\nd_model = 500", "some.toml: model.heads = 8: must divide model.d_model = 500"},
      {"[model]\nd_model = 63\nheads = 7",
       "some.toml:2: model.d_model = 63: must be even, since sinusoidal positions come in pairs"},
      {"[model]\nd_model = 24\nposition = \"rope\"",
       "some.toml:3: model.position = \"rope\": turns pairs, so model.d_model / model.heads = 3 must be even"},
      {"[some]\ntop_k = 65", "some.toml:2: some.top_k = 65: must not be more than some.experts = 64"},
      {"[some]\nbeta_layer_scale = [1, 0.5]",
       "some.toml:2: some.beta_layer_scale has 2 numbers: wants one number for all layers, or a list of model.layers = "
       "10"},
      {"[some]\nbeta_layer_scale = -1",
       "some.toml:2: some.beta_layer_scale: wants a number or a list of numbers, each of at least 0, not the whole "
       "number -1"},
      {"[some]\nfrozen_layers = [3, 10]",
       "some.toml:2: some.frozen_layers names layer 10: model.layers = 10, so layers are 0 to 9"},
      {"[some]\nfrozen_layers = [1.5]",
       "some.toml:2: some.frozen_layers: wants a list of whole numbers, each of at least 0, not the number 1.5"},
      {"[some]\ntopk_warmup = 1.5", "some.toml:2: some.topk_warmup: wants a number from 0 to 1, not the number 1.5"},
      {"[some]\nentropy_band = [2.5, 1.5]", "some.toml:2: some.entropy_band = [2.5, 1.5]: wants the lower end first"},
      {"[some]\nentropy_band = [1.5, 2.5]",
       "some.toml:2: some.entropy_band = [1.5, 2.5]: the gates of some.top_k = 4 experts have at most 1.386 nats, so "
       "the lower end must not be above that"},
      {"[some]\nbeta_anneal = {shap = \"linear\"}",
       "some.toml:2: unknown key some.beta_anneal.shap; did you mean some.beta_anneal.shape?"},
      {"[some]\nbeta_anneal = {shape = \"exponential\", start = 1, end = 0}",
       "some.toml:2: some.beta_anneal: an exponential shape wants start and end above 0"},
      {"[some]\nbeta_anneal = {start = 0.5, end = 0}",
       "some.toml:2: some.beta_anneal has start = 0.5 and end = 0, but no shape, so they would do nothing: add shape = "
       "\"linear\", \"cosine\" or \"exponential\""},
      {"[some]\nrespawn_threshold = 1.5",
       "some.toml:2: some.respawn_threshold = 1.5: some.constraint keeps keys no longer than 1, so that every key "
       "would "
       "die in every update; wants a number of at most 1"},
      {"[some]\ntraining = \"lora\"\nlora_rank = 600",
       "some.toml:3: some.lora_rank = 600: must not be more than the smaller side of an expert's matrix, 512"},
      {"[some]\ntemperature = \"learned\"\ntrain_temp_end = 1.0",
       "some.toml:3: some.train_temp_end = 1: cannot be given with some.temperature = \"learned\"; leave one out"},
      {"[data]\nvocab = 100",
       "some.toml:2: data.vocab = 100: a bytelevel vocabulary has at least 259 tokens, 256 bytes and 3 special ones"},
      {"[data]\nvalid_share = 0",
       "some.toml:2: data.valid_share = 0: leaves nothing to validate on; give data.valid, or a share above 0"},
      {"[data]\ntrain = \"\"", "some.toml:2: data.train = \"\": wants a file, a folder or \"builtin:stories\""},
      {"[train]\nmax_steps = 10\nwarmup_steps = 20",
       "some.toml:3: train.warmup_steps = 20: must not be more than train.max_steps = 10; lower it too"},
      {"base = 3",
       "some.toml:1: base: wants the file name of another recipe, such as \"a4.toml\", not the whole number 3"},
      {"base = \"nothing.toml\"", "some.toml:1: base = \"nothing.toml\": there is no file nothing.toml"},
      {"[published]\nvall = [1]", "some.toml:2: unknown key published.vall; did you mean published.val?"},
      {"[published]\nval = [1, 2]\ntrain = [1]",
       "some.toml:3: published.train has 1 numbers where the other lists have 2"},
      {"[published]\nval = 1",
       "some.toml:2: published.val: wants a list of numbers, one an epoch, nan where nothing was reported"},
      {"[published]\nsteps = \"x\"", "some.toml:2: published.steps: wants a number, not the text \"x\""},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(message_of(text), expected) << text;
  // Broken TOML names the line.
  EXPECT_TRUE(message_of("[train]\nlr = \n").starts_with("some.toml:2: not TOML: ")) << message_of("[train]\nlr = \n");
  EXPECT_TRUE(message_of("a = 1\na = 2\n").starts_with("some.toml:2: not TOML: "));
  // Bare names are ASCII; beyond it the library behind is not to be trusted. Texts and comments may hold anything.
  EXPECT_EQ(message_of("\nm\u00F6del = 1\n"),
            "some.toml:2: not TOML: a character beyond ASCII may only stand in quotes or in a comment");
  EXPECT_EQ(message_of("# \u00F6\ntitle = \"M\u00F6del '\" # \u00F6\n"), "");
  EXPECT_EQ(message_of("\xEF\xBB\xBFtitle = \"\"\"\n\u00F6\"\" \\\"\"\"\"\n"), "");
  EXPECT_NE(message_of("\"" + std::string(300, 'x') + "\" = 1").find("300 bytes"), std::string::npos);
}

TEST(Recipe, MessagesOfOverrides) {
  EXPECT_EQ(message_of("", {"some.topk=3"}), "override some.topk=3: unknown key some.topk; did you mean some.top_k?");
  EXPECT_EQ(message_of("", {"train.lr=fast"}),
            "override train.lr=fast: train.lr: wants a number above 0, not the text \"fast\"");
  EXPECT_EQ(message_of("", {"train.lr"}), "override train.lr: wants KEY=VALUE, such as train.max_steps=100");
  EXPECT_EQ(message_of("", {"=3"}), "override =3: wants KEY=VALUE, such as train.max_steps=100");
  EXPECT_EQ(message_of("", {"base=a4.toml"}), "override base=a4.toml: base can only stand in the file");
  EXPECT_EQ(message_of("", {"model.heads=7"}),
            "override model.heads=7: model.heads = 7: must divide model.d_model = 512");
  EXPECT_EQ(message_of("", {"memory.slots=1000", "memory.parts=7"}),
            "override memory.parts=7: memory.parts: 1000 slots do not make 7 parts of equal size; say a number that "
            "divides them");
  // A value cannot smuggle in a second key.
  EXPECT_NE(message_of("", {"train.epochs=1\nmax_steps = 3"}).find("train.epochs: wants a whole number"),
            std::string::npos);
}

TEST(Recipe, DenseAndNoneIgnoreSettingsOfExperts) {
  EXPECT_EQ(message_of("[model]\nffn = \"none\"\n[some]\nexperts = 2\n"), "");
  EXPECT_EQ(message_of("[model]\nffn = \"dense\"\ndense_mult = 0.0001\n"),
            "some.toml:3: model.dense_mult = 0.0001: makes a hidden layer of 0; model.dense_mult * model.d_model must "
            "be at least 1");
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

  // A fault in the base is reported where it stands.
  folder.write("bad.toml", "\n[some]\ntop_k = \"two\"\n");
  const std::string on_bad = folder.write("on-bad.toml", "base = \"bad.toml\"\n");
  try {
    load_recipe(on_bad, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("bad.toml:3: some.top_k"), std::string::npos) << error.what();
  }

  const std::string round = folder.write("x.toml", "base = \"y.toml\"\n");
  folder.write("y.toml", "\nbase = \"./deep/../x.toml\"\n");
  try {
    load_recipe(round, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("y.toml:2: base"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("builds on itself"), std::string::npos) << error.what();
  }
}

TEST(Recipe, MissingRecipeIsBadInput) {
  const Folder folder;
  for (const std::string& path : {(folder.path() / "none.toml").string(), folder.path().string()}) {
    try {
      load_recipe(path, {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::input);
      EXPECT_EQ(std::string(error.what()).find(path), 0U);
    }
  }
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
  // The router's last layer has 3 outputs in place of 8.
  EXPECT_EQ(with([](ModelConfig& c) { c.query_dim = 3; }), Pair(-2 * 5 * 17, -2 * 5 * 17));
  EXPECT_EQ(with([](ModelConfig& c) { c.output_proj = OutputProj::linear; }), Pair(2 * 64, 2 * 64));
  // features: a trained d x f, and experts that lose d x f and their second bias of d.
  EXPECT_EQ(with([](ModelConfig& c) { c.output_proj = OutputProj::features; }),
            Pair(2 * 48 - 2 * 4 * (48 + 8), 2 * 48));
  // modulated: a hidden layer of f with its bias, its readout, gains; experts as with features, or none.
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
  EXPECT_EQ(with([](ModelConfig& c) {  // and no second norm, which would stand before nothing
              c.ffn = Ffn::none;
              c.norm = Norm::pre;
            })
                .second,
            16 - 2 * (2 * 16 * 8 + 16 + 8) - 2 * 16);
  EXPECT_EQ(with([](ModelConfig& c) {  // a dense block of the router's shape has the router's parameters
              c.ffn = Ffn::dense;
              c.dense_mult = 2.0;
            })
                .second,
            0);
}

}  // namespace
}  // namespace some
