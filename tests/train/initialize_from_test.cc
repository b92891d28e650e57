// Runs initialized from the weights and keys of another run.
#include "train/initialize_from.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/files/files.h"
#include "expect_error.h"
#include "temporary_folder.h"
#include "train/small_run.h"

namespace some {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> other_text{"data.train=builtin:nature", "train.lr=0.001"};

void expect_same_tensors(const std::string& a, const std::string& b) {
  const SafetensorsFile x = SafetensorsFile::open(a), y = SafetensorsFile::open(b);
  ASSERT_EQ(x.names(), y.names());
  for (const std::string& name : x.names()) {
    if (name.ends_with("epoch_counts")) continue;  // counts of the run's own epoch
    const Tensor p = x.load(name), q = y.load(name);
    EXPECT_EQ(std::string(static_cast<const char*>(p.raw()), p.bytes()),
              std::string(static_cast<const char*>(q.raw()), q.bytes()))
        << name;
  }
}

std::vector<nlohmann::json> lines_of(const std::string& run) {
  std::vector<nlohmann::json> out;
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

TEST(From, BeginsWithWeightsAndKeysAndSavesThemAtOnce) {
  TemporaryFolder folder;
  const std::string source = folder / "source", run = folder / "run";
  start_run(recipe(), source, {});
  const std::string last = find_checkpoint(source, "latest").folder;
  struct Killed {};
  TrainHooks killed;
  killed.evaluated = [](const EvaluationReport&) { throw Killed(); };
  std::string told;
  killed.log = Log([&](const LogMessage& message) { told += message.text + "\n"; });
  EXPECT_THROW(start_run(recipe(other_text), run, killed, FromOptions{source}), Killed);
  const std::string first = find_checkpoint(run, "latest").folder;
  EXPECT_TRUE(first.ends_with("step-0"));
  expect_same_tensors(first + "/model.safetensors", last + "/model.safetensors");
  EXPECT_NE(told.find("data.train = \"builtin:nature\" (\"builtin:stories\")"), std::string::npos) << told;
  EXPECT_NE(told.find("train.lr = 0.001 (0.0006)"), std::string::npos) << told;
  // Moments that were not requested start at zero.
  const Tensor moment = SafetensorsFile::open(first + "/optimizer.safetensors").load("first.embed.weight");
  for (std::int64_t i = 0; i < moment.elements(); ++i) ASSERT_EQ(moment.data<float>()[i], 0.0F);
  const auto from = read_run_recipe(run).from;
  ASSERT_TRUE(from);
  EXPECT_EQ(from->run, source);
  EXPECT_EQ(from->step, 10);
  EXPECT_EQ(from->hash.size(), 16u);
  const nlohmann::json state = read_checkpoint_state(find_checkpoint(run, "latest"));
  EXPECT_NE(state["recipe"]["from"].get<std::string>().find(from->hash), std::string::npos);
  EXPECT_EQ(file_bytes(source + "/tokenizer.json"), file_bytes(run + "/tokenizer.json"));
  // The run continues without the other run, identical to one that was never killed.
  start_run(recipe(other_text), folder / "whole", {}, FromOptions{source});
  fs::rename(source, folder / "elsewhere");
  resume_run(run, {}, {});
  expect_same_run(folder / "whole", run);
  const auto lines = lines_of(run);
  EXPECT_EQ(lines.front()["kind"], "eval");  // the initial evaluation
  EXPECT_EQ(lines.front()["step"], 0);
  EXPECT_EQ(lines.front()["layers"][0]["key_moved"]["max"], 0.0);
}

TEST(From, StopsAndGoesOnBitIdentical) {
  TemporaryFolder folder;
  const std::string source = folder / "source";
  start_run(recipe(), source, {});
  for (const bool optimizer : {false, true}) {
    const FromOptions from{source, "best", optimizer};
    const std::string whole = folder / fmt::format("whole-{}", optimizer);
    start_run(recipe(other_text), whole, {}, from);
    for (const int stop : {1, 6, 9}) {
      const std::string run = folder / fmt::format("run-{}-{}", optimizer, stop);
      start_run(recipe(other_text), run, stop_after(stop), from);
      resume_run(run, {}, {});
      expect_same_run(whole, run);
    }
  }
  EXPECT_NE(file_bytes(find_checkpoint(folder / "whole-false", "latest").folder + "/model.safetensors"),
            file_bytes(find_checkpoint(folder / "whole-true", "latest").folder + "/model.safetensors"));
}

TEST(From, MomentsComeWithTheStepsTheyHaveSeen) {
  TemporaryFolder folder;
  const std::string source = folder / "source";
  start_run(recipe(), source, {});
  start_run(recipe(), folder / "one", stop_after(2), FromOptions{source, "latest", true});
  start_run(recipe(), folder / "two", stop_after(1), FromOptions{folder / "one", "2", true});
  EXPECT_EQ(read_checkpoint_state(find_checkpoint(folder / "one", "latest"))["moments_before"], 10);
  EXPECT_EQ(read_checkpoint_state(find_checkpoint(folder / "two", "latest"))["moments_before"], 12);
  expect_same_tensors(find_checkpoint(folder / "one", "0").folder + "/optimizer.safetensors",
                      find_checkpoint(source, "latest").folder + "/optimizer.safetensors");
}

TEST(From, RulesMayDiffer) {
  TemporaryFolder folder;
  const std::string source = folder / "source";
  start_run(recipe({"some.key_ema=0.8"}), source, {});
  const std::vector<std::vector<std::string>> changes{
      {"some.key_ema=0", "some.use_beta=false", "some.top_k=1"},
      {"some.key_ema=0.5", "some.usage=cumulative", "some.constraint=free", "model.seq_len=32"}};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const std::string run = folder / fmt::format("run-{}", i);
    start_run(recipe(changes[i]), run, {}, FromOptions{source});
    // Key state is copied if both rules have it; state only in the new rules starts from the keys.
    start_run(recipe({"some.key_ema=0.9"}), folder / fmt::format("again-{}", i), stop_after(1), FromOptions{run});
    const SafetensorsFile began =
        SafetensorsFile::open(find_checkpoint(folder / fmt::format("again-{}", i), "0").folder + "/model.safetensors");
    const Tensor keys = began.load("layers.0.keys"), average = began.load("layers.0.keys_average");
    const bool same = std::string(static_cast<const char*>(keys.raw()), keys.bytes()) ==
                      std::string(static_cast<const char*>(average.raw()), average.bytes());
    EXPECT_EQ(same, i == 0);
  }
}

TEST(From, WhatDoesNotFitIsRefusedWithBothValues) {
  TemporaryFolder folder;
  const std::string source = folder / "source";
  start_run(recipe(), source, stop_after(1));
  // Returns the differing settings named in the error, which must also name the source.
  const auto refused = [&](const std::vector<std::string>& overrides) -> std::string {
    const auto error = error_in([&] { start_run(recipe(overrides), folder / "run", {}, FromOptions{source}); });
    EXPECT_FALSE(fs::exists(folder / "run"));
    EXPECT_TRUE(is_bad_input(error, Code::from_mismatch, {"--from"}));
    return error ? error->values().back() : "";
  };
  const std::string sizes = refused({"model.d_model=32", "some.experts=7", "some.library_seed=3", "train.lr=1"});
  for (const char* part : {"model.d_model = 32 (16)", "some.experts = 7 (6)", "some.library_seed = 3 (0)"})
    EXPECT_NE(sizes.find(part), std::string::npos) << sizes;
  EXPECT_EQ(sizes.find("train.lr"), std::string::npos) << sizes;
  EXPECT_NE(refused({"data.vocab=300"}).find("data.vocab = 300 (320)"), std::string::npos);
  EXPECT_NE(refused({"data.tokenizer=whitespace"}).find("data.tokenizer"), std::string::npos);
  // The same tokenizer given as a file is accepted; another file is not.
  start_run(recipe({"data.tokenizer=" + source + "/tokenizer.json"}), folder / "same", stop_after(1),
            FromOptions{source});
  start_run(recipe({"data.train=builtin:nature"}), folder / "other", stop_after(1));
  EXPECT_NE(refused({"data.tokenizer=" + (folder / "other/tokenizer.json")}).find("data.tokenizer"), std::string::npos);
}

TEST(From, ASourceThatIsAnotherByNowIsNoticed) {
  TemporaryFolder folder;
  const std::string source = folder / "source", run = folder / "run";
  start_run(recipe(), source, {});
  start_run(recipe(), run, stop_after(1), FromOptions{source});
  // State after a kill before the first checkpoint.
  fs::remove_all(run + "/checkpoints");
  fs::remove(run + "/latest");
  const std::string model = find_checkpoint(source, "latest").folder + "/model.safetensors";
  const std::string bytes = file_bytes(model);
  write_file_atomic(model, bytes + "x");
  EXPECT_ERROR((resume_run(run, {}, {})), Code::from_mismatch);
  write_file_atomic(model, bytes);
  resume_run(run, {}, {});
  start_run(recipe(), folder / "whole", {}, FromOptions{source});
  expect_same_run(folder / "whole", run);
  // A recipe cannot set [from].
  const Recipe copied = load_recipe(run + "/config.toml", {});
  EXPECT_ERROR((start_run(copied, folder / "copied", {})), Code::from_mismatch, copied.name);
}

}  // namespace
}  // namespace some
