#include "analysis/ablate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "analysis/assignments.h"
#include "analysis/tiny_run.h"
#include "expect_error.h"

namespace some {
namespace {

// Ten units without an effect, one with a constant effect in every document: only that one is beyond chance.
TEST(Ablate, RandomSignsFindOnlyARealEffect) {
  std::vector<std::vector<double>> changes;
  for (int unit = 0; unit < 10; ++unit) {
    auto& row = changes.emplace_back();
    for (int j = 0; j < 40; ++j) row.push_back(std::sin(1.7 * j * (unit + 1) + unit));
  }
  auto& real = changes.emplace_back();
  for (int j = 0; j < 40; ++j) real.push_back(0.01 * (2 + std::sin(j)));
  const std::vector<double> p = sign_flip_p(changes, 500, 3);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_GT(p[i], 0.05) << i;
  EXPECT_DOUBLE_EQ(p[10], 1.0 / 501);
  EXPECT_EQ(sign_flip_p(changes, 500, 3), p);
  EXPECT_EQ(sign_flip_p({{0, 0}}, 10, 0), std::vector<double>{1.0});
  EXPECT_TRUE(sign_flip_p({}, 10, 0).empty());
}

TEST(Ablate, LeavesOutTheBlockOfALayer) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  AblateOptions options;
  options.unit = AblateUnit::layer;
  options.max_documents = 4;
  options.shuffles = 20;
  const AblateReport report = ablate(run, options), again = ablate(run, options);
  ASSERT_EQ(std::ssize(report.knock_outs), run.recipe.model.layers);
  for (std::size_t i = 0; i < report.knock_outs.size(); ++i) {
    const KnockOut& one = report.knock_outs[i];
    EXPECT_EQ(one.unit, "layer");
    EXPECT_EQ(one.layer, static_cast<int>(i));
    EXPECT_EQ(one.expert, -1);
    EXPECT_NE(one.change, 0);
    EXPECT_EQ(one.change, again.knock_outs[i].change) << "the model is left as it was";
    EXPECT_TRUE(run.model->layers()[i].ffn);
  }
  EXPECT_EQ(report.loss, again.loss);
}

// Initial keys change the assignments; keys that never moved change nothing.
TEST(Ablate, MovesKeysBackAndAtRandom) {
  TemporaryFolder folder;
  for (const bool moves : {true, false}) {
    OpenedRun run =
        open_tiny(train_tiny(folder, moves ? std::vector<std::string>{"some.alpha=0.5", "some.use_delta=false"}
                                           : std::vector<std::string>{"some.use_alpha=false", "some.use_beta=false",
                                                                      "some.use_delta=false"}));
    AblateOptions options;
    options.unit = AblateUnit::movement;
    options.max_documents = 4;
    options.shuffles = 20;
    const std::vector<double> before = read_vector(run.model->layers()[0].keys.keys);
    const AblateReport report = ablate(run, options);
    EXPECT_EQ(read_vector(run.model->layers()[0].keys.keys), before);
    ASSERT_EQ(std::ssize(report.knock_outs), 2 * run.recipe.model.layers);
    for (std::size_t i = 0; i < report.knock_outs.size(); ++i) {
      const KnockOut& one = report.knock_outs[i];
      EXPECT_EQ(one.unit, i % 2 == 0 ? "movement" : "random movement");
      EXPECT_EQ(one.layer, static_cast<int>(i / 2));
      if (moves) {
        EXPECT_GT(one.moved, 1e-4);
        EXPECT_NE(one.change, 0);
      } else {
        EXPECT_EQ(one.moved, 0);
        EXPECT_NEAR(one.change, 0, 1e-9);
      }
    }
    std::filesystem::remove_all(run.paths.folder);
  }
}

TEST(Ablate, ChangesAreThoseOfAModelThatNeverChoosesTheExpert) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  AblateOptions options;
  options.layer = 1;
  options.max_documents = 4;
  options.shuffles = 20;
  int calls = 0;
  options.progress = [&](int done, int total) {
    EXPECT_EQ(done, ++calls);
    EXPECT_EQ(total, run.recipe.model.experts);
  };
  const AblateReport report = ablate(run, options);
  ASSERT_EQ(std::ssize(report.knock_outs), run.recipe.model.experts);
  const AnalysisText text = load_analysis_text(run, "", 4);
  CollectOptions collect;
  collect.max_documents = 4;
  collect.predicted_only = true;
  collect.pad_id = run.tokenizer.pad_id();
  collect.eos_id = run.tokenizer.eos_id();
  collect.long_documents = run.recipe.data.long_documents;
  const Choices whole = collect_assignments(*run.model, text.data, collect);
  double loss = 0;
  for (const double one : whole.nll) loss += one / static_cast<double>(whole.positions());
  EXPECT_NEAR(report.loss, loss, 1e-9) << "the model is left as it was";
  double load = 0;
  for (const KnockOut& one : report.knock_outs) {
    load += one.load;
    double by_class = 0;
    for (std::size_t c = 0; c < one.by_class.size(); ++c) by_class += one.by_class[c] * report.class_shares[c];
    EXPECT_NEAR(by_class, one.change, 1e-9);
    EXPECT_GT(one.p, 0);
    EXPECT_LE(one.p, 1);
    if (one.load == 0) {
      EXPECT_EQ(one.change, 0) << "an expert that nothing chooses";
    }
  }
  EXPECT_NEAR(load, run.recipe.model.experts, 1e-9);
  // Repeats one ablation by hand: the expert has no assignments, and the losses equal those of the report.
  KeyState& keys = run.model->layers()[1].keys;
  Tensor bias = Tensor::zeros({run.recipe.model.experts}, keys.keys.dtype());
  bias.data<float>()[2] = -1e30F;
  keys.choice_bias = bias;
  const Choices without = collect_assignments(*run.model, text.data, collect);
  EXPECT_EQ(std::count(without.layers[1].experts.begin(), without.layers[1].experts.end(), 2), 0);
  double other = 0;
  for (const double one : without.nll) other += one / static_cast<double>(without.positions());
  EXPECT_NEAR(report.knock_outs[2].change, other - loss, 1e-9);
}

TEST(Ablate, WhatCannotBeKnockedOutIsRefused) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"some.routing=hash"}));
  EXPECT_ERROR(ablate(run, {}), Code::model_unsuitable, folder / "run");
  AblateOptions options;
  options.layer = 9;
  EXPECT_ERROR(ablate(run, options), Code::layer_out_of_range, "9", "1");
}

}  // namespace
}  // namespace some
