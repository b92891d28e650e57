// Runs that are extended when they are resumed.
#include "train/extend.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/files/files.h"
#include "expect_error.h"
#include "recipe/schedule.h"
#include "temporary_folder.h"
#include "train/small_run.h"

namespace some {
namespace {

namespace fs = std::filesystem;

ResumeOptions with(const std::vector<std::string>& changes) { return {changes, {}}; }

TEST(Prolong, AFinishedRunGoesOnAndItsScheduleIsExplained) {
  TemporaryFolder folder;
  const std::string run = folder / "run";
  start_run(recipe(), run, {});
  const std::string config = read_file(run + "/config.toml");
  std::string told;
  bool changed = false;
  TrainHooks hooks;
  hooks.log = Log([&](const LogMessage& message) {
    told += message.text + "\n";
    changed = changed || message.code == Code::run_settings_changed;
  });
  const TrainResult result = resume_run(run, with({"train.epochs=3", "train.patience=50"}), hooks);
  EXPECT_FALSE(result.was_finished);
  EXPECT_EQ(result.steps, 15);
  EXPECT_TRUE(run_is_finished(run));
  EXPECT_EQ(read_run_recipe(run).train.epochs, 3);
  EXPECT_EQ(read_run_recipe(run).train.patience, 50);
  EXPECT_EQ(read_file(run + "/config-until-step-10.toml"), config);
  for (const char* part : {"train.epochs = 3 (2)", "15 steps", "config-until-step-10.toml"})
    EXPECT_NE(told.find(part), std::string::npos) << part << "\n" << told;
  EXPECT_FALSE(changed);
  // The new schedule, at the same step.
  const TrainConfig train = read_run_recipe(run).train;
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  bool seen = false;
  for (std::string line; std::getline(lines, line);) {
    const auto one = nlohmann::json::parse(line);
    if (one["kind"] != "train" || one["step"] != 12) continue;
    EXPECT_EQ(one["lr"].get<double>(), learning_rate(train, 11, 15));
    seen = true;
  }
  EXPECT_TRUE(seen);
}

TEST(Prolong, StoppedAndResumedItGivesTheSameBits) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "whole", {});
  for (const int stop : {1, 2, 4})
    fs::copy(folder / "whole", folder / fmt::format("{}", stop), fs::copy_options::recursive);
  resume_run(folder / "whole", with({"train.epochs=3"}), {});
  for (const int stop : {1, 2, 4}) {
    const std::string run = folder / fmt::format("{}", stop);
    resume_run(run, with({"train.epochs=3"}), stop_after(stop));
    EXPECT_FALSE(run_is_finished(run));
    std::string told;
    TrainHooks hooks;
    hooks.log = Log([&](const LogMessage& message) {
      if (message.level == LogLevel::warning) told += message.text;
    });
    // Repeating the same command has the same meaning.
    resume_run(run, with(stop == 2 ? std::vector<std::string>{"train.epochs=3"} : std::vector<std::string>{}), hooks);
    EXPECT_EQ(told, "");
    expect_same_run(folder / "whole", run);
  }
}

// A kill between the new config.toml and the first checkpoint with it.
TEST(Prolong, AKillInBetweenLosesNothing) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "whole", {});
  fs::copy(folder / "whole", folder / "killed", fs::copy_options::recursive);
  resume_run(folder / "whole", with({"train.epochs=3"}), {});
  write_file_atomic(folder / "killed/config.toml",
                    write_recipe(read_run_recipe(folder / "killed", {"train.epochs=3"})));
  resume_run(folder / "killed", {}, {});
  expect_same_run(folder / "whole", folder / "killed");
}

TEST(Prolong, ARunThatStoppedEarlyCanBeGivenPatience) {
  TemporaryFolder folder;
  const std::string run = folder / "run";
  const TrainResult first = start_run(
      recipe({"train.lr=1e-12", "train.weight_decay=0", "train.eval_every=1", "train.patience=2", "train.epochs=2",
              "some.use_alpha=false", "some.use_beta=false", "some.use_delta=false", "some.respawn_threshold=0"}),
      run, {});
  ASSERT_TRUE(first.stopped_early);
  EXPECT_TRUE(resume_run(run, {}, {}).was_finished);
  EXPECT_EQ(resume_run(run, with({"train.patience=0"}), {}).steps, 10);
}

TEST(Prolong, OnlyLongerAndOnlyWhatIsHarmless) {
  TemporaryFolder folder;
  const std::string run = folder / "run";
  start_run(recipe({"train.max_steps=7"}), run, {});
  const std::string config = read_file(run + "/config.toml");
  const auto refused = [&](const std::vector<std::string>& changes, Code code, const std::vector<std::string>& values) {
    EXPECT_TRUE(is_bad_input(error_in([&] { resume_run(run, with(changes), {}); }), code, values));
    EXPECT_EQ(read_file(run + "/config.toml"), config);
  };
  refused({"train.lr=1"}, Code::resume_refused, {"train.lr=1", run});
  refused({"model.d_model=8"}, Code::resume_refused, {"model.d_model=8", run});
  refused({"train.epoch=8"}, Code::setting_unknown, {"train.epoch", "train.epochs"});
  refused({"train.epochs=8"}, Code::resume_refused, {"7"});
  refused({"train.max_steps=5"}, Code::resume_refused, {"train.epochs", "5", "5", "7"});
  refused({"train.max_steps=12", "train.batch=2"}, Code::resume_refused, {"train.batch=2", run});
  EXPECT_EQ(resume_run(run, with({"train.max_steps=9"}), {}).steps, 9);
  EXPECT_EQ(resume_run(run, with({"train.max_steps=0"}), {}).steps, 10);  // in the middle of an epoch, then to its end
}

}  // namespace
}  // namespace some
