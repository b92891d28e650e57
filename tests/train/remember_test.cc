// The memory that a recipe requests: built when training ends, continued if that was interrupted.
#include "train/remember.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "memory/memory_file.h"
#include "memory/reader.h"
#include "temporary_folder.h"
#include "train/small_run.h"

namespace some {
namespace {

const std::vector<std::string> asked = {"memory.slots=64", "memory.window=8"};

TEST(Remember, AFinishedRunHasTheMemoryThatItsRecipeAsksFor) {
  TemporaryFolder folder;
  bool told = false;
  TrainHooks hooks;
  hooks.remember = [&](const std::string&, std::int64_t done, std::int64_t total) { told = told || done == total; };
  const TrainResult result = start_run(recipe(asked), folder / "asked", hooks);
  ASSERT_TRUE(result.memory);
  EXPECT_TRUE(told);
  EXPECT_EQ(result.memory->file, folder / "asked/memory.safetensors");
  EXPECT_EQ(result.memory->slots, 64);
  EXPECT_GT(result.memory->slots_in_use, 0);
  EXPECT_GT(result.memory->loss, 0);
  EXPECT_NE(result.memory->loss, result.memory->loss_without);
  OpenedRun run = open_run(folder / "asked", {});
  const Memory memory = open_memory(run, result.memory->file);
  EXPECT_EQ(memory.settings.slots, 64);
  EXPECT_EQ(memory.settings.window, 8);

  const TrainResult plain = start_run(recipe(), folder / "plain", {});
  EXPECT_FALSE(plain.memory);
  EXPECT_FALSE(std::filesystem::exists(folder / "plain/memory.safetensors"));
  // The memory does not change training.
  EXPECT_EQ(file_bytes(folder / "asked/metrics.jsonl"), file_bytes(folder / "plain/metrics.jsonl"));
}

TEST(Remember, ARunThatWasStoppedHasNoneUntilItsEnd) {
  TemporaryFolder folder;
  const TrainResult stopped = start_run(recipe(asked), folder / "run", stop_after(2));
  EXPECT_EQ(stopped.stopped_by, SIGTERM);
  EXPECT_FALSE(stopped.memory);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/memory.safetensors"));
  EXPECT_TRUE(resume_run(folder / "run", {}, {}).memory);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/memory.safetensors"));
}

TEST(Remember, ReadingThatWasStoppedGoesOn) {
  TemporaryFolder folder;
  const TrainResult whole = start_run(recipe(asked), folder / "whole", {});
  bool reading = false;
  TrainHooks hooks;
  hooks.remember = [&](const std::string&, std::int64_t, std::int64_t) { reading = true; };
  hooks.stop_signal = [&] { return reading ? SIGTERM : 0; };
  const TrainResult stopped = start_run(recipe(asked), folder / "stopped", hooks);
  EXPECT_EQ(stopped.stopped_by, SIGTERM);
  ASSERT_TRUE(stopped.memory);
  EXPECT_TRUE(stopped.memory->stopped);
  EXPECT_TRUE(run_is_finished(folder / "stopped"));
  EXPECT_LT(stopped.memory->tokens, whole.memory->tokens);
  const TrainResult again = resume_run(folder / "stopped", {}, {});
  EXPECT_EQ(again.stopped_by, 0);
  ASSERT_TRUE(again.memory);
  EXPECT_FALSE(again.memory->stopped);
  EXPECT_EQ(again.memory->slots_in_use, whole.memory->slots_in_use);
  EXPECT_DOUBLE_EQ(again.memory->loss, whole.memory->loss);
}

TEST(Remember, ARunThatIsExtendedHasAMemoryOfItsLastWeights) {
  TemporaryFolder folder;
  const TrainResult first = start_run(recipe(asked), folder / "run", {});
  const std::string path = folder / "run/memory.safetensors", before = file_bytes(path);
  std::vector<std::string> lines;
  TrainHooks hooks;
  hooks.log = Log([&](const LogMessage& message) { lines.push_back(message.text); });
  // Nothing to do: the memory stays as it is.
  resume_run(folder / "run", {}, hooks);
  EXPECT_EQ(file_bytes(path), before);
  const TrainResult longer = resume_run(folder / "run", {{"train.epochs=3"}, {}}, hooks);
  ASSERT_TRUE(longer.memory);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(),
                          [](const std::string& one) { return one.find("rebuilt") != std::string::npos; }));
  EXPECT_NE(file_bytes(path), before);
  OpenedRun run = open_run(folder / "run", {});
  EXPECT_EQ(open_memory(run, path).texts.size(), 1u);  // throws if it belongs to other weights
  // A memory that was built for these weights at once is the same.
  TrainingMemoryOptions options;
  options.memory = folder / "again.safetensors";
  EXPECT_EQ(build_training_memory(run, options).loss, longer.memory->loss);
}

TEST(Remember, AMemoryWithOtherTextsIsRenamedWhenItsRunIsExtended) {
  TemporaryFolder folder;
  start_run(recipe(asked), folder / "run", {});
  const std::string path = folder / "run/memory.safetensors";
  {
    OpenedRun run = open_run(folder / "run", {});
    Memory memory = open_memory(run, path);
    const std::vector<std::int32_t> text = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    learn_text(*run.model, memory, "mine", text, std::ssize(text), [](auto, auto) { return true; });
    save_memory(memory, path);
  }
  const std::string mine = file_bytes(path);
  const TrainResult longer = resume_run(folder / "run", {{"train.epochs=3"}, {}}, {});
  ASSERT_TRUE(longer.memory);
  const std::string kept = folder / fmt::format("run/memory-before-step-{}.safetensors", longer.steps);
  EXPECT_EQ(file_bytes(kept), mine);
  OpenedRun run = open_run(folder / "run", {});
  EXPECT_EQ(open_memory(run, path).texts.size(), 1u);
  EXPECT_THROW(open_memory(run, kept), Error);
}

}  // namespace
}  // namespace some
