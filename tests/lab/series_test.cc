// The index of series, and every recipe of the project: each is read, validated, and compared with the numbers printed
// in its report.
#include "lab/series.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/files/files.h"
#include "expect_error.h"
#include "model/operations.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"

namespace some {
namespace {

namespace fs = std::filesystem;

const std::string recipes_folder = std::string(SOME_SOURCE_DIR) + "/recipes";

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(recipes_folder)) {
    if (entry.path().extension() == ".toml" && entry.path().stem() != "index" && entry.path().stem() != "report")
      names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string printed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

TEST(Recipes, EveryOneIsReadAndCommented) {
  ASSERT_GT(recipe_names().size(), 90U);
  for (const std::string& name : recipe_names()) {
    const std::string path = recipes_folder + "/" + name + ".toml";
    Recipe recipe;
    ASSERT_NO_THROW(recipe = load_recipe(path, {})) << name;
    EXPECT_EQ(recipe.name, name);
    EXPECT_FALSE(recipe.title.empty()) << name;
    EXPECT_TRUE(read_file(path).starts_with("# ")) << name << " says in a comment where it comes from";
    // The recipe saved in a run folder is read back as the same run.
    EXPECT_TRUE(write_recipe(parse_recipe(write_recipe(recipe), path, {})) == write_recipe(recipe)) << name;
  }
}

TEST(Recipes, PrintedParametersAndStepsAreReproduced) {
  int counted = 0, stepped = 0;
  for (const std::string& name : recipe_names()) {
    const Recipe recipe = load_recipe(recipes_folder + "/" + name + ".toml", {});
    if (!recipe.published) continue;
    const auto& values = recipe.published->values;
    const ParameterCounts counts = count_parameters(recipe.model);
    if (values.count("total_parameters_m") > 0) {
      EXPECT_EQ(printed(static_cast<double>(counts.total) / 1e6, 2), printed(values.at("total_parameters_m"), 2))
          << name;
      EXPECT_EQ(printed(static_cast<double>(counts.trainable) / 1e6, 2),
                printed(values.at("trainable_parameters_m"), 2))
          << name;
      ++counted;
    }
    if (values.count("steps") > 0) {
      EXPECT_EQ(recipe.data.train_documents / recipe.train.batch * recipe.train.epochs,
                static_cast<std::int64_t>(values.at("steps")))
          << name;
      ++stepped;
    }
  }
  EXPECT_GE(counted, 45);
  EXPECT_GE(stepped, 44);
}

TEST(Recipes, PublishedNumbersAgreeWithThemselves) {
  for (const std::string& name : recipe_names()) {
    const Recipe recipe = load_recipe(recipes_folder + "/" + name + ".toml", {});
    if (!recipe.published) continue;
    EXPECT_FALSE(recipe.published->source.empty()) << name;
    for (const PublishedEpoch& epoch : recipe.published->epochs) {
      EXPECT_GE(epoch.epoch, 1) << name;
      EXPECT_LE(epoch.epoch, recipe.train.epochs) << name;
      const auto has = [&](const char* key) { return epoch.values.count(key) > 0; };
      // Detects typos: perplexity is the exponential of the validation loss, as printed (both are rounded).
      if (has("val") && has("ppl")) {
        EXPECT_NEAR(std::exp(epoch.values.at("val")), epoch.values.at("ppl"), 0.0061)
            << name << " epoch " << epoch.epoch;
      }
      for (const char* gini : {"gini", "gini_mass"}) {
        if (has(gini)) {
          EXPECT_TRUE(epoch.values.at(gini) > 0.3 && epoch.values.at(gini) < 1) << name;
        }
      }
      for (const char* entropy : {"entropy", "entropy_mass"}) {
        if (has(entropy)) {
          EXPECT_LE(epoch.values.at(entropy), std::log2(recipe.model.experts)) << name;
        }
      }
    }
    if (!recipe.published->epochs.empty() && recipe.published->values.count("best_gini") > 0 && name != "a6") {
      EXPECT_NEAR(recipe.published->values.at("best_gini"), recipe.published->epochs.back().values.at("gini"), 0.00051)
          << name;
      EXPECT_NEAR(recipe.published->values.at("best_entropy"), recipe.published->epochs.back().values.at("entropy"),
                  0.00051)
          << name;
    }
  }
}

TEST(Recipes, SeriesAShareEverythingButTheBackbone) {
  const Recipe a4 = load_recipe(recipes_folder + "/a4.toml", {});
  for (const char* name : {"a1", "a2", "a3", "a5", "a6"}) {
    for (const std::string& difference :
         recipe_differences(load_recipe(recipes_folder + "/" + name + ".toml", {}), a4)) {
      EXPECT_TRUE(difference.starts_with("model.d_model") || difference.starts_with("model.layers") ||
                  difference.starts_with("model.heads"))
          << difference;
    }
  }
}

TEST(Recipes, ControlsAreOfTheSizeTheySay) {
  const ModelConfig a4 = load_recipe(recipes_folder + "/a4-warm.toml", {}).model;
  const ModelConfig equal = load_recipe(recipes_folder + "/control-dense-trainable.toml", {}).model;
  EXPECT_EQ(count_parameters(equal).trainable, count_parameters(a4).trainable);
  const ModelConfig active = load_recipe(recipes_folder + "/control-dense-active.toml", {}).model;
  const std::int64_t d = a4.d_model;
  EXPECT_EQ(2 * d * active.dense_hidden(), 2 * d * a4.router_hidden() + a4.experts * d + a4.top_k * 2 * d * a4.d_ffn);
  const auto operations = [](const ModelConfig& model) { return count_operations(model, 1000, 5000); };
  EXPECT_EQ(operations(active).forward, operations(a4).forward);
  const ModelConfig step = load_recipe(recipes_folder + "/control-dense-step.toml", {}).model;
  EXPECT_EQ(operations(step).total(), operations(a4).total());
  const ModelConfig a6 = load_recipe(recipes_folder + "/a6.toml", {}).model;
  EXPECT_EQ(count_parameters(load_recipe(recipes_folder + "/a6-dense.toml", {}).model).trainable,
            count_parameters(a6).trainable);
}

TEST(Recipes, DefaultIsTheReferenceOfEveryKey) {
  const std::string text = read_file(recipes_folder + "/default.toml");
  const Recipe defaults;
  for (const RecipeKey& key : recipe_keys()) {
    // The comment written by the program is directly above the key; the value may differ.
    const std::string expected = fmt::format("# {}\n#   {}; {} if not set\n{} = ", key.meaning, key.expected(),
                                             key.write(key.get(defaults)), key.name);
    EXPECT_NE(text.find(expected), std::string::npos)
        << "recipes/default.toml lacks or misdescribes " << key.full_name() << ":\n"
        << expected;
  }
}

TEST(SeriesIndexFile, KnowsEveryRecipe) {
  const SeriesIndex index = load_series_index(recipes_folder + "/index.toml");
  const std::vector<std::string> all = index.all_recipes();
  for (const std::string& name : recipe_names()) {
    if (name == "published") continue;  // shared settings, not a run
    EXPECT_NE(std::find(all.begin(), all.end(), name), all.end()) << name << " is in no series";
  }
  for (const Series& series : index.series) {
    EXPECT_FALSE(series.title.empty() || series.about.empty()) << series.name;
  }
  ASSERT_NE(index.find("series-a"), nullptr);
  EXPECT_EQ(index.find("series-a")->recipes, (std::vector<std::string>{"a1", "a2", "a3", "a4", "a5", "a6"}));
  EXPECT_EQ(index.select({"a6", "series-b", "a4", "series-a"}),
            (std::vector<std::string>{"a6", "a4", "b1", "b2", "b3", "a1", "a2", "a3", "a5"}));
  EXPECT_EQ(index.select({"all"}), all);
  const auto near = [&](const std::string& name) {
    const auto error = error_in([&] { index.select({name}); });
    EXPECT_TRUE(is_bad_input(error, Code::series_unknown, {name}));
    return error ? error->values().back() : "";
  };
  EXPECT_EQ(near("v1"), "1-v1 or 3-v1");
  EXPECT_NE(near("serie-a").find("series-a"), std::string::npos);
  EXPECT_EQ(near("nosuch"), "") << "no name is near: none is guessed";
}

TEST(SeriesIndexFile, FaultsAreNamedWithTheirPlace) {
  const fs::path folder = fs::temp_directory_path() / ("some-series-test-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "x.toml") << "# x\n";
  const std::string file = (folder / "index.toml").string();
  const auto read = [&](const std::string& text) {
    std::ofstream(file) << text;
    return error_in([&] { load_series_index(file); });
  };
  const auto refused = [&](const std::string& text, Code code, const std::vector<std::string>& values) {
    EXPECT_TRUE(is_bad_input(read(text), code, values)) << text;
  };
  EXPECT_FALSE(read("[[series]]\nname = \"s\"\nrecipes = [\"x\"]\n"));
  EXPECT_FALSE(read("[[series]]\nname = \"s\"\nrecipes = [\"x\"]\ncontinual = [\"a.txt\", \"builtin:recipes\"]\n"));
  EXPECT_EQ(load_series_index(file).find("s")->continual, (std::vector<std::string>{"a.txt", "builtin:recipes"}));
  refused("[[series]]\nname = \"s\"\nrecipes = [\"x\"]\ncontinual = \"a.txt\"\n", Code::setting_type,
          {file + ":4", "continual"});
  refused("[[series]]\nname = \"s\"\nrecipe = [\"x\"]\n", Code::setting_unknown, {file + ":3", "recipe", "recipes"});
  refused("[[series]]\nname = \"s\"\nrecipes = [\"x\", \"x\"]\n", Code::name_taken, {file, "3", "recipes", "x"});
  refused("[[series]]\nname = \"s\"\n", Code::setting_missing, {file, "1"});
  refused("[[series]]\nname = \"x\"\nrecipes = [\"x\"]\n", Code::name_taken, {file, "x"});
  refused("[[series]]\nname = \"s\"\nrecipes = [\"x\"]\n[[series]]\nname = \"s\"\nrecipes = [\"x\"]\n",
          Code::name_taken, {file, "4", "s"});
  refused("other = 3\n", Code::setting_unknown, {file, "1", "other"});
  refused("[[series]]\nname = \"s\"\nrecipes = [\"y\"]\n", Code::recipe_not_found, {file, "1", "s", "y"});
  fs::remove_all(folder);
}

}  // namespace
}  // namespace some
