// Small versions of every recipe.
#include "recipe/scale.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"

namespace some {
namespace {

namespace fs = std::filesystem;

const std::string recipes_folder = std::string(SOME_SOURCE_DIR) + "/recipes";

Recipe recipe_named(const std::string& name) { return load_recipe(recipes_folder + "/" + name + ".toml", {}); }

TEST(Scale, EveryRecipeStaysPossibleAndGetsNoLarger) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(recipes_folder)) {
    if (entry.path().extension() != ".toml" || entry.path().stem() == "index" || entry.path().stem() == "report")
      continue;
    const Recipe full = load_recipe(entry.path().string(), {});
    for (const double factor : {0.5, 0.05, 0.001}) {
      SCOPED_TRACE(fmt::format("{} at {}", full.name, factor));
      const Recipe small = scale_recipe(full, factor);
      EXPECT_NO_THROW(check_config(small.model));
      // Includes all checks of a recipe file.
      EXPECT_NO_THROW(parse_recipe(write_recipe(small), full.name, {}));
      EXPECT_LE(small.model.d_model, full.model.d_model);
      EXPECT_EQ(small.model.d_model % (2 * small.model.heads), 0);
      EXPECT_LE(small.model.layers, full.model.layers);
      EXPECT_LE(small.model.experts, full.model.experts);
      EXPECT_GE(small.model.experts, std::min(full.model.experts, 2 * full.model.top_k));
      EXPECT_EQ(small.model.top_k, full.model.top_k);
      EXPECT_LE(small.model.seq_len, full.model.seq_len);
      EXPECT_GE(small.model.seq_len, std::min(full.model.seq_len, 256));
      EXPECT_GE(small.data.train_documents, 2 * small.train.batch * small.train.accumulate);
      EXPECT_EQ(small.model.vocab, small.data.vocab);
      EXPECT_EQ(small.train.epochs, full.train.epochs);
      EXPECT_EQ(small.train.lr, std::stod(fmt::format("{:.3g}", small.train.lr))) << "readable in a resolved recipe";
      EXPECT_EQ(write_recipe(small), write_recipe(scale_recipe(full, factor)));
    }
    ++count;
  }
  EXPECT_GT(count, 90);
}

TEST(Scale, StagesShrinkLikeTheRest) {
  const std::vector<std::string> own{"data.train_documents=40000", "train.warmup_steps=900", "train.lr=0.002"};
  const Recipe full = recipe_named("continual");
  std::vector<std::string> in_stage;
  for (const std::string& one : own) in_stage.push_back("stage.2." + one);
  const Recipe small = scale_recipe(override_recipe(full, "x", in_stage), 0.05);
  const Recipe alone = scale_recipe(override_recipe(full, "x", own), 0.05), second = stage_recipes(small)[1];
  EXPECT_LT(second.data.train_documents, 40000);
  EXPECT_EQ(second.data.train_documents, alone.data.train_documents);
  EXPECT_EQ(second.train.warmup_steps, alone.train.warmup_steps);
  EXPECT_EQ(second.train.lr, alone.train.lr);
  EXPECT_EQ(second.data.train, "builtin:nature");
}

TEST(Scale, OneChangesNothing) {
  const Recipe a4 = recipe_named("a4");
  EXPECT_EQ(write_recipe(scale_recipe(a4, 1)), write_recipe(a4));
}

TEST(Scale, SeriesAKeepsItsOrderOfWidthsAndDepths) {
  const Recipe a1 = scale_recipe(recipe_named("a1"), 0.05), a2 = scale_recipe(recipe_named("a2"), 0.05);
  const Recipe a4 = scale_recipe(recipe_named("a4"), 0.05), a6 = scale_recipe(recipe_named("a6"), 0.05);
  EXPECT_LT(a1.model.d_model, a2.model.d_model);
  EXPECT_EQ(a2.model.d_model, a4.model.d_model);
  EXPECT_LT(a2.model.layers, a4.model.layers);
  EXPECT_LT(a4.model.layers, a6.model.layers);
  // 500 of 10,000 documents, in batches of 5 instead of 32: steps, and settings counted in steps, shrink in proportion.
  EXPECT_EQ(a4.data.train_documents, 500);
  EXPECT_EQ(a4.data.valid_documents, 100);
  EXPECT_EQ(a4.train.batch, 5);
  EXPECT_EQ(a4.model.keys.decay_warmup, 128);  // 400 * (500 / 5) / (10000 / 32)
}

TEST(Scale, LayersTakeWeightsFromTheSameDepth) {
  const Recipe d1 = scale_recipe(recipe_named("d1"), 0.05);
  ASSERT_EQ(d1.model.layers, 8);
  EXPECT_EQ(d1.model.keys.beta_layer_scale, (std::vector<double>{1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5}));
  const Recipe d2 = scale_recipe(recipe_named("d2"), 0.05);
  EXPECT_EQ(d2.model.keys.frozen_layers, (std::vector<int>{4, 5, 6, 7}));
}

TEST(Scale, QueriesShrinkWithTheModelButStayWideEnough) {
  Recipe recipe = recipe_named("a4");
  EXPECT_EQ(scale_recipe(recipe, 0.05).model.query_dim, 0);
  recipe.model.query_dim = 128;
  EXPECT_EQ(scale_recipe(recipe, 0.25).model.query_dim, 56);  // 128 * 0.25^0.6
  EXPECT_EQ(scale_recipe(recipe, 0.001).model.query_dim, 16);
  recipe.model.query_dim = 5;
  EXPECT_EQ(scale_recipe(recipe, 0.001).model.query_dim, 5);
}

TEST(Scale, NamesAndFactors) {
  EXPECT_EQ(scaled_name("a4", 0.05), "a4@0.05");
  EXPECT_EQ(scaled_name("a4", 1), "a4");
  const Recipe a4 = recipe_named("a4");
  for (const double factor : {0.0, -1.0, 1.5, std::nan("")}) EXPECT_THROW(scale_recipe(a4, factor), Error) << factor;
}

}  // namespace
}  // namespace some
