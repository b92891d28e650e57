// The memory that a recipe requests: built when training ends, continued if that was interrupted.
#include "train/remember.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

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

}  // namespace
}  // namespace some
