#include "lab/sweep.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "temporary_folder.h"

namespace some {
namespace {

const char* const small =
    "[model]\nd_model = 16\nlayers = 1\nheads = 2\nseq_len = 16\nffn = \"none\"\n"
    "[data]\ntrain = \"builtin:stories\"\ntrain_documents = 40\nvalid_documents = 4\nvocab = 300\n"
    "[train]\nepochs = 1\nbatch = 8\nmax_steps = 3\nthreads = 1\nlr = 0.01\n";

TEST(Sweep, AxesAreSplitAtCommas) {
  EXPECT_EQ(parse_axis("train.lr=0.1,0.2").values, (std::vector<std::string>{"0.1", "0.2"}));
  EXPECT_EQ(parse_axis("train.lr=0.1").values, (std::vector<std::string>{"0.1"}));
  EXPECT_EQ(parse_axis("train.betas=[0.9, 0.95],[0.8, 0.9]").values,
            (std::vector<std::string>{"[0.9, 0.95]", "[0.8, 0.9]"}));
  EXPECT_EQ(parse_axis("data.train=\"a,b\",c").values, (std::vector<std::string>{"\"a,b\"", "c"}));
  EXPECT_ERROR(parse_axis("train.lr"), Code::setting_syntax, "train.lr");
  EXPECT_ERROR(parse_axis("train.lr=1,,2"), Code::setting_syntax, "train.lr=1,,2");
  EXPECT_ERROR(parse_axis("=1,2"), Code::setting_syntax, "=1,2");
}

TEST(Sweep, EveryCombinationIsPlannedWithEverySeed) {
  const TemporaryFolder folder;
  SweepOptions options{folder.write("small.toml", small),
                       folder / "runs",
                       {{"train.lr", {"0.01", "0.02"}}, {"train.betas", {"[0.9, 0.95]", "[0.8, 0.9]"}}},
                       {"train.threads=1", "seed=5"},
                       2};
  const Sweep sweep = plan_sweep(options);
  ASSERT_EQ(sweep.points.size(), 4U);
  ASSERT_EQ(sweep.plan.size(), 8U);
  EXPECT_EQ(sweep.plan[0].name, "lr=0.01_betas=0.9_0.95");
  EXPECT_EQ(sweep.plan[1].name, "lr=0.01_betas=0.9_0.95-seed1");
  EXPECT_EQ(sweep.points[2].values, (std::vector<std::string>{"0.02", "[0.9, 0.95]"}));
  EXPECT_EQ(sweep.points[2].runs, (std::vector<std::size_t>{4, 5}));
  const Recipe& recipe = sweep.plan[5].recipe;
  EXPECT_EQ(recipe.train.lr, 0.02);
  EXPECT_EQ(recipe.seed, 6U);
  EXPECT_EQ(recipe.model.seed, 6U);
  EXPECT_EQ(sweep.plan[5].resume_changes, (std::vector<std::string>{"train.threads=1"}));
}

TEST(Sweep, WhatCannotBeTrainedIsRefusedFirst) {
  const TemporaryFolder folder;
  const std::string recipe = folder.write("small.toml", small);
  const auto plan = [&](const std::vector<SweepAxis>& axes, int seeds = 1) {
    plan_sweep({recipe, folder / "runs", axes, {}, seeds});
  };
  EXPECT_ERROR(plan({}), Code::argument_missing);
  EXPECT_ERROR(plan({{"train.lr", {"0.01", "fast"}}}), Code::setting_type, "override train.lr=fast", "train.lr");
  EXPECT_ERROR(plan({{"train.lrr", {"1", "2"}}}), Code::setting_unknown, "override train.lrr=1", "train.lrr",
               "train.lr");
  EXPECT_ERROR(plan({{"train.lr", {"1", "2"}}, {"train.lr", {"3", "4"}}}), Code::name_taken, "train.lr");
  EXPECT_ERROR(plan({{"train.lr", {"1", "1"}}}), Code::name_taken, "train.lr");
  EXPECT_ERROR(plan({{"seed", {"1", "2"}}}, 2), Code::option_conflict, "seed");
  EXPECT_ERROR(plan({{"train.lr", {"1", "2"}}}, 600), Code::option_invalid, "1200", "1000");
}

// Trained runs: means, deviations, and the best.
TEST(Sweep, ResultsAreThoseOfTheRuns) {
  const TemporaryFolder folder;
  const Sweep sweep =
      plan_sweep({folder.write("small.toml", small), folder / "runs", {{"train.lr", {"0.00001", "0.01"}}}, {}, 2});
  EXPECT_FALSE(read_sweep(sweep).best);
  std::vector<double> losses;
  for (const QueueEntry& entry : run_queue(sweep.plan, {})) {
    ASSERT_EQ(entry.outcome, Outcome::trained) << entry.message;
    losses.push_back(entry.result.final_evaluation->loss);
  }
  SweepReport report = read_sweep(sweep);
  ASSERT_EQ(report.results.size(), 2U);
  EXPECT_EQ(report.best, 1U);
  EXPECT_EQ(report.next, 0U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(report.results[i].loss, (losses[2 * i] + losses[2 * i + 1]) / 2, 1e-12);
    EXPECT_NEAR(report.results[i].deviation, std::abs(losses[2 * i] - losses[2 * i + 1]) / std::sqrt(2), 1e-12);
  }
  report.chance = (report.results[0].loss - report.results[1].loss) / 2 + 1e-9;
  EXPECT_TRUE(report.within_chance());
  report.chance -= 2e-9;
  EXPECT_FALSE(report.within_chance());
  const nlohmann::json json = to_json(sweep, report);
  EXPECT_EQ(json["best"]["train.lr"], "0.01");
  EXPECT_EQ(json["points"][0]["losses"].size(), 2U);
}

}  // namespace
}  // namespace some
