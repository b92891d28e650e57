// Texts that a run writes at each evaluation.
#include "train/samples.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/files/files.h"
#include "temporary_folder.h"
#include "train/small_run.h"

namespace some {
namespace {

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(file_bytes(path));
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Samples, OneLinePerEvaluationWithOneTextPerPrompt) {
  TemporaryFolder folder;
  TrainHooks hooks;
  std::vector<std::int64_t> evaluated, sampled;
  hooks.evaluated = [&](const EvaluationReport& report) { evaluated.push_back(report.step); };
  hooks.sampled = [&](const SampleReport& report) {
    sampled.push_back(report.step);
    EXPECT_EQ(report.samples.size(), 3U);
  };
  start_run(recipe({"train.samples=3"}), folder / "run", hooks);
  EXPECT_GE(evaluated.size(), 3U);
  EXPECT_EQ(sampled, evaluated);
  const std::vector<nlohmann::json> lines = lines_of(folder / "run/samples.jsonl");
  ASSERT_EQ(lines.size(), evaluated.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), evaluated[i]);
    ASSERT_EQ(lines[i].at("samples").size(), 3U);
    for (std::size_t s = 0; s < 3; ++s) {
      const nlohmann::json& one = lines[i]["samples"][s];
      EXPECT_FALSE(one.at("prompt").get<std::string>().empty());
      EXPECT_FALSE(one.at("text").get<std::string>().empty());
      EXPECT_EQ(one["prompt"], lines[0]["samples"][s]["prompt"]) << "prompts stay the same";
    }
    EXPECT_NE(lines[i]["samples"][0]["text"], lines[i]["samples"][1]["text"]);
  }
  EXPECT_NE(lines.front()["samples"], lines.back()["samples"]) << "the model has learned in between";
}

TEST(Samples, AGivenPromptBeginsEveryText) {
  TemporaryFolder folder;
  start_run(recipe({"train.samples=2", "train.sample_prompt=The fox", "train.max_steps=2"}), folder / "run", {});
  const std::vector<nlohmann::json> lines = lines_of(folder / "run/samples.jsonl");
  ASSERT_FALSE(lines.empty());
  for (const nlohmann::json& one : lines[0].at("samples")) EXPECT_EQ(one.at("prompt"), "The fox");
  EXPECT_NE(lines[0]["samples"][0]["text"], lines[0]["samples"][1]["text"]);
}

TEST(Samples, TrainingHasTheSameBitsWithAndWithoutThem) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "with", {});
  start_run(recipe({"train.samples=0"}), folder / "without", {});
  EXPECT_TRUE(std::filesystem::exists(folder / "with/samples.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder / "without/samples.jsonl"));
  std::filesystem::copy(folder / "with/samples.jsonl", folder / "without/samples.jsonl");
  expect_same_run(folder / "with", folder / "without");
}

TEST(Samples, ALostFileIsReportedAndTheRunContinues) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "whole", {});
  start_run(recipe(), folder / "run", stop_after(6));
  const std::size_t kept = lines_of(folder / "run/samples.jsonl").size();
  std::filesystem::remove(folder / "run/samples.jsonl");
  TrainHooks hooks;
  int warnings = 0;
  hooks.log = Log([&](const LogMessage& message) { warnings += message.code == Code::metrics_damaged; });
  resume_run(folder / "run", {}, hooks);
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(lines_of(folder / "run/samples.jsonl").size() + kept, lines_of(folder / "whole/samples.jsonl").size());
}

TEST(Samples, AFileOfAnotherRunIsReportedAndTheRunContinues) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "whole", {});
  start_run(recipe({"seed=2"}), folder / "other", {});
  start_run(recipe(), folder / "run", stop_after(6));
  const std::string own = file_bytes(folder / "run/samples.jsonl"), other = file_bytes(folder / "other/samples.jsonl");
  ASSERT_GT(other.size(), own.size());
  ASSERT_NE(other.substr(0, own.size()), own);
  write_file_atomic(folder / "run/samples.jsonl", other);
  TrainHooks hooks;
  std::vector<std::string> warnings;
  hooks.log = Log([&](const LogMessage& message) {
    if (message.code == Code::metrics_damaged) warnings.push_back(message.text);
  });
  resume_run(folder / "run", {}, hooks);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find(folder / "run/samples.jsonl"), std::string::npos) << warnings[0];
  // Lines stay whole, and those after the checkpoint are the run's own.
  EXPECT_EQ(lines_of(folder / "run/samples.jsonl").back(), lines_of(folder / "whole/samples.jsonl").back());
  resume_run(folder / "run", {.changes = {"train.epochs=3"}, .from_step = {}}, hooks);
  EXPECT_EQ(warnings.size(), 1U) << "reported once";
}

TEST(Samples, AModelWithoutACausalMaskIsRefused) {
  EXPECT_TRUE(
      is_error(error_in([] { recipe({"model.causal=false"}); }), Code::setting_conflict, {"train.samples", "2"}));
}

}  // namespace
}  // namespace some
