// Runs that are stopped and resumed, that fail, and that end early.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/files/files.h"
#include "expect_error.h"
#include "runs/checkpoint.h"
#include "runs/run_lock.h"
#include "temporary_folder.h"
#include "tensor/safetensors.h"
#include "train/small_run.h"

namespace some {
namespace {

TEST(Trainer, ReportsARunThatEndsWithinItsWarmup) {
  TemporaryFolder folder;
  std::int64_t steps = 0;
  const auto messages = [&](int warmup, const std::string& run) {
    std::string all;
    TrainHooks hooks;
    hooks.log = Log([&](const LogMessage& message) { all += message.text + "\n"; });
    steps = start_run(load_recipe(SOME_SOURCE_DIR "/tests/train/small_run.toml",
                                  {"train.epochs=1", "train.samples=0", fmt::format("train.warmup_steps={}", warmup)}),
                      folder / run, hooks)
                .steps;
    return all;
  };
  const std::string told = messages(100, "long");
  EXPECT_LT(steps, 100);
  EXPECT_NE(told.find(fmt::format("train.epochs={}", (1000 + steps - 1) / steps)), std::string::npos) << told;
  EXPECT_EQ(messages(1, "short").find("train.epochs="), std::string::npos);
}

TEST(Trainer, AStoppedAndResumedRunEndsBitIdentical) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "whole", {});
  // Stopped after different numbers of steps, also in the middle of an epoch; each time with another number of threads.
  for (const int stop : {1, 4, 5, 7, 9}) {
    const std::string run = folder / fmt::format("stopped-{}", stop);
    int steps = 0;
    TrainHooks hooks;
    hooks.step = [&](const TrainProgress&) { ++steps; };
    hooks.stop_signal = [&] { return steps >= stop ? SIGTERM : 0; };
    const TrainResult first = start_run(recipe({"train.threads=1"}), run, hooks);
    EXPECT_EQ(first.stopped_by, SIGTERM);
    EXPECT_EQ(first.steps, stop);
    EXPECT_FALSE(run_is_finished(run));
    resume_run(run, {{fmt::format("train.threads={}", 1 + stop % 3)}, {}}, {});
    EXPECT_TRUE(run_is_finished(run));
    expect_same_run(folder / "whole", run);
  }
}

// Everything that learns or accumulates is in a checkpoint, with moments for exactly the tensors that the optimizer
// updates.
TEST(Trainer, WhateverLearnsGoesOnBitIdentical) {
  const std::vector<std::vector<std::string>> settings{
      {"some.training=lora", "some.lora_rank=3"},
      {"some.training=full", "some.output_proj=features"},
      {"some.output_proj=modulated", "some.token_shift=3", "some.modulation=additive", "some.balance_rate=0.01",
       "some.output_proj_init=zero"},
      {"some.output_proj=modulated", "model.conv=2", "some.input_proj=true"},
      {"some.input_proj=true", "some.query_dim=5", "some.output_proj=features", "some.ground=0.2"},
      {"some.temperature=learned", "some.entropy_band=[0.1, 0.3]", "some.balance_loss=0.1", "some.key_ema=0.8",
       "some.balance_rate=0.01"},
      {"some.usage=cumulative", "some.update_every=2", "some.update_fraction=0.5", "some.ground=0.2",
       "some.frozen_layers=[1]", "some.beta_anneal={shape=\"cosine\", start=1, end=0.1}",
       "some.beta_layer_scale=[1, 0.5]"},
      {"model.dropout=0.2", "some.key_partitions=3", "some.key_probe=2", "some.balance_rate=0.01"},
      {"some.usage=flux", "some.routing=hash", "some.constraint=free", "some.clip_delta=0.05"}};
  for (const auto& overrides : settings) {
    TemporaryFolder folder;
    const Recipe one = recipe(overrides);
    start_run(one, folder / "whole", {});
    int steps = 0;
    TrainHooks hooks;
    hooks.step = [&](const TrainProgress&) { ++steps; };
    hooks.stop_signal = [&] { return steps >= 5 ? SIGTERM : 0; };
    start_run(one, folder / "stopped", hooks);
    resume_run(folder / "stopped", {}, {});
    expect_same_run(folder / "whole", folder / "stopped");
    const std::string last = list_checkpoints(folder / "whole").back().folder;
    const SafetensorsFile moments = SafetensorsFile::open(last + "/optimizer.safetensors");
    std::int64_t remembered = 0;
    for (const std::string& name : moments.names())
      remembered += name.starts_with("first.") ? moments.load(name).elements() : 0;
    ModelConfig counted = one.model;
    counted.vocab = 320;
    EXPECT_EQ(remembered, count_parameters(counted).trainable) << overrides[0];
  }
}

TEST(Trainer, AKilledRunGoesBackToItsLastCheckpoint) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "whole", {});
  struct Killed {};
  TrainHooks hooks;
  hooks.step = [](const TrainProgress& p) {
    if (p.step == 8) throw Killed();
  };
  EXPECT_THROW(start_run(recipe(), folder / "killed", hooks), Killed);
  // An incomplete checkpoint, as left by a kill during writing.
  std::filesystem::create_directories(folder / "killed/checkpoints/step-8.writing");
  EXPECT_EQ(list_checkpoints(folder / "killed").back().step, 6);
  resume_run(folder / "killed", {}, {});
  expect_same_run(folder / "whole", folder / "killed");
}

TEST(Trainer, RepeatsBitForBit) {
  TemporaryFolder folder;
  start_run(recipe({"train.threads=2"}), folder / "a", {});
  start_run(recipe({"train.threads=1"}), folder / "b", {});
  expect_same_run(folder / "a", folder / "b");
}

TEST(Trainer, LearnsTheStories) {
  TemporaryFolder folder;
  const TrainResult result = start_run(
      recipe({"train.epochs=8", "train.lr=0.01", "train.accumulate=1", "train.warmup_steps=5"}), folder / "run", {});
  // ln 320 = 5.77 is the loss of a uniform prediction.
  EXPECT_LT(result.final_evaluation->loss, 4.6);
  EXPECT_GT(result.final_evaluation->bits_per_byte, 0.5);
}

TEST(Trainer, ALossThatIsNotANumberStopsTheRunAndKeepsTheLastCheckpoint) {
  TemporaryFolder folder;
  const auto error = error_in([&] {
    start_run(recipe({"train.lr=1e30", "train.clip=0", "train.checkpoint_every=1"}), folder / "run", {});
  });
  ASSERT_TRUE(is_error(error, Code::loss_not_finite));
  EXPECT_EQ(error->fault(), Fault::failure);
  EXPECT_EQ(error->values().size(), 1u) << "the step";
  for (const auto& checkpoint : list_checkpoints(folder / "run")) {
    const SafetensorsFile file = SafetensorsFile::open(checkpoint.folder + "/model.safetensors");
    const Tensor embed = file.load("embed.weight");
    EXPECT_TRUE(std::isfinite(embed.data<float>()[0])) << checkpoint.folder;
  }
}

TEST(Trainer, StopsEarlyWhenAsked) {
  TemporaryFolder folder;
  const TrainResult result = start_run(
      recipe({"train.lr=1e-12", "train.weight_decay=0", "train.eval_every=1", "train.patience=2", "train.epochs=6",
              "some.use_alpha=false", "some.use_beta=false", "some.use_delta=false", "some.respawn_threshold=0"}),
      folder / "run", {});
  EXPECT_LT(result.steps, 30);
  EXPECT_TRUE(run_is_finished(folder / "run"));
}

TEST(Trainer, RefusesAFolderThatHoldsARunAndOtherDataOnResuming) {
  TemporaryFolder folder;
  TrainHooks hooks;
  hooks.stop_signal = [] { return SIGINT; };
  start_run(recipe(), folder / "run", hooks);
  const std::string run = folder / "run";
  EXPECT_ERROR(start_run(recipe(), run, {}), Code::run_exists, run);
  EXPECT_ERROR((resume_run(run, {{"train.lr=1"}, {}}, {})), Code::resume_refused, "train.lr=1", run);
  std::string config = read_file(folder / "run/config.toml");
  const auto at = config.find("train_documents = 40");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 20, "train_documents = 48");
  write_file_atomic(folder / "run/config.toml", config);
  EXPECT_ERROR((resume_run(run, {}, {})), Code::run_mismatch, run);
}

// The typical input of nanoGPT users: one plain file without separators.
TEST(Trainer, APlainFileWithoutSeparatorsTrains) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("Line {} of a play, spoken by person {}.\n", i, i % 9);
  const std::string file = folder.write("input.txt", text);
  const std::vector<std::string> plain{"data.train=" + file, "data.train_documents=0", "data.valid_documents=0",
                                       "data.long=split", "train.max_steps=4"};
  const TrainResult result = start_run(recipe(plain), folder / "run", {});
  EXPECT_EQ(result.data.train.documents, 1);
  EXPECT_EQ(result.data.train.cut(), 0);
  EXPECT_GT(result.data.train.sequences, 50);
  EXPECT_EQ(result.data.valid.documents, 1);
  EXPECT_EQ(result.final_evaluation->tokens, result.data.valid.tokens - 1);  // all but the first
  const auto written = read_run_data(RunPaths{folder / "run"});
  ASSERT_TRUE(written);
  EXPECT_EQ(written->train.tokens, result.data.train.tokens);
  EXPECT_EQ(written->valid.sequences, result.data.valid.sequences);
  // With data.long = "cut" there is one sequence and nothing to validate on: an error with advice.
  std::vector<std::string> cut = plain;
  cut.push_back("data.long=cut");
  EXPECT_ERROR(start_run(recipe(cut), folder / "cut", {}), Code::data_too_few, "data.train");
}

// Runs older than data.long cut their documents; resumed, they continue to do so.
TEST(Trainer, ARunWithoutTheKeyLongCutsItsDocuments) {
  TemporaryFolder folder;
  start_run(recipe({"data.long=cut"}), folder / "run", {});
  EXPECT_EQ(read_run_recipe(folder / "run").data.long_documents, LongDocuments::cut);
  std::string config = file_bytes(folder / "run/config.toml");
  const std::size_t line = config.find("long = \"cut\"\n");
  ASSERT_NE(line, std::string::npos);
  config.erase(line, 13);
  write_file_atomic(folder / "run/config.toml", config);
  EXPECT_EQ(read_run_recipe(folder / "run").data.long_documents, LongDocuments::cut);
}

TEST(Trainer, NothingIsWrittenWhenTheDataAreWrong) {
  TemporaryFolder folder;
  EXPECT_ERROR((start_run(recipe({"data.train=\"no-such-file.txt\""}), folder / "run", {})), Code::file_not_found,
               "no-such-file.txt");
  EXPECT_ERROR((start_run(recipe({"train.batch=4000"}), folder / "run", {})), Code::data_too_few, "4000");
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  // Failures while the text is read leave no folder behind either.
  TrainHooks hooks;
  struct Stopped {};
  hooks.prepare = [](const std::string&, std::int64_t, std::int64_t) { throw Stopped(); };
  EXPECT_THROW(start_run(recipe(), folder / "run", hooks), Stopped);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(Trainer, ARunThatIsTrainedIsLeftAloneByOthers) {
  TemporaryFolder folder;
  TrainHooks hooks;
  bool refused = false;
  hooks.step = [&](const TrainProgress& progress) {
    if (progress.step != 3) return;
    EXPECT_THROW(resume_run(folder / "run", {}, {}), RunLocked);
    refused = true;
  };
  start_run(recipe(), folder / "run", hooks);
  EXPECT_TRUE(refused);
  std::ofstream(folder / "run/best.tmp-1-2") << "half";  // as left by a killed process
  EXPECT_NO_THROW(resume_run(folder / "run", {}, {}));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/best.tmp-1-2"));
}

TEST(Trainer, AFinishedRunWithoutCheckpointsIsNotTrainedAgain) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "run", {});
  const std::string metrics = read_file(folder / "run/metrics.jsonl");
  std::filesystem::remove_all(folder / "run/checkpoints");
  EXPECT_TRUE(run_is_finished(folder / "run"));
  EXPECT_ERROR((resume_run(folder / "run", {}, {})), Code::run_finished, folder / "run");
  EXPECT_EQ(read_file(folder / "run/metrics.jsonl"), metrics);
}

TEST(Trainer, CheckpointsThatCannotBeSeenAreAnErrorAndNothingIsTouched) {
  namespace fs = std::filesystem;
  TemporaryFolder folder;
  const std::string run = folder / "run", checkpoints = run + "/checkpoints";
  start_run(recipe(), run, stop_after(5));
  const std::string metrics = read_file(run + "/metrics.jsonl");
  fs::rename(checkpoints, folder / "elsewhere");
  // Not mounted: a dangling link, and an empty folder in the place of a disk.
  fs::create_symlink(folder / "nowhere", checkpoints);
  EXPECT_ERROR((resume_run(run, {}, {})), Code::link_broken, checkpoints, folder / "nowhere");
  fs::remove(checkpoints);
  fs::create_directory(checkpoints);
  EXPECT_ERROR((resume_run(run, {}, {})), Code::checkpoint_not_found, run, "5");
  EXPECT_EQ(read_file(run + "/metrics.jsonl"), metrics);
  fs::remove(checkpoints);
  fs::rename(folder / "elsewhere", checkpoints);
  resume_run(run, {}, {});
  start_run(recipe(), folder / "whole", {});
  expect_same_run(folder / "whole", run);
}

TEST(Trainer, LostMetricsArePutBack) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "whole", {});
  for (const char* damage : {"gone", "short", "zeros", "copy"}) {
    const std::string run = folder / damage, metrics = run + "/metrics.jsonl";
    start_run(recipe(), run, stop_after(6));
    const std::size_t size = read_file(metrics).size();
    if (damage == std::string("gone")) std::filesystem::remove(metrics);
    if (damage == std::string("short")) std::filesystem::resize_file(metrics, size / 2);
    if (damage == std::string("zeros")) write_file_atomic(metrics, std::string(size, '\0'));
    // A damaged copy in the checkpoint does not replace an intact file.
    if (damage == std::string("copy")) {
      const std::string copy = list_checkpoints(run).back().folder + "/metrics.jsonl";
      std::string bytes = read_file(copy);
      bytes[bytes.size() / 2] ^= 1;
      write_file_atomic(copy, bytes);
    }
    resume_run(run, {}, {});
    expect_same_run(folder / "whole", run);
    EXPECT_EQ(std::filesystem::exists(metrics + ".replaced"), damage == std::string("zeros"));
  }
}

TEST(Trainer, TheBestIsMarkedAgainAndKept) {
  TemporaryFolder folder;
  const std::string run = folder / "run";
  start_run(recipe({"train.keep_checkpoints=1"}), run, stop_after(6));
  const auto best = best_step(run);
  ASSERT_TRUE(best);
  write_file_atomic(run + "/best", "1\n");  // as left by a kill between the checkpoint and its marker
  EXPECT_EQ(best_step(run), best);
  resume_run(run, {}, {});
  EXPECT_EQ(read_file(run + "/best"), std::to_string(*best_step(run)) + "\n");
  EXPECT_EQ(find_checkpoint(run, "best").step, *best_step(run));
}

TEST(Trainer, ADamagedCheckpointIsNamedAndTheOneBeforeItIsOffered) {
  TemporaryFolder folder;
  const std::string run = folder / "run";
  start_run(recipe(), folder / "whole", {});
  start_run(recipe(), run, stop_after(7));
  const auto all = list_checkpoints(run);
  ASSERT_GE(all.size(), 2U);
  const std::string damaged = all.back().folder + "/model.safetensors";
  std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) / 2);
  const std::int64_t before = all[all.size() - 2].step;
  const auto error = error_in([&] { resume_run(run, {}, {}); });
  ASSERT_TRUE(is_bad_input(error, Code::safetensors_layout, {run, fmt::to_string(before), damaged}));
  resume_run(run, {{}, before}, {});
  EXPECT_TRUE(std::filesystem::exists(all.back().folder + ".aside"));
  expect_same_run(folder / "whole", run);
}

TEST(Trainer, ManualChangesAreReported) {
  TemporaryFolder folder;
  const std::string run = folder / "run";
  start_run(recipe(), run, stop_after(4));
  std::string config = read_file(run + "/config.toml");
  const auto at = config.find("\nlr = 0.0006");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 12, "\nlr = 0.0005");
  write_file_atomic(run + "/config.toml", config);
  std::vector<LogMessage> told;
  TrainHooks hooks;
  hooks.log = Log([&](const LogMessage& message) { told.push_back(message); });
  resume_run(run, {}, hooks);
  EXPECT_TRUE(has_warning(told, Code::run_settings_changed, {"4", "train.lr = 0.0005 (it was 0.0006)"}));
}

TEST(Trainer, LitterOfAKillIsRemoved) {
  namespace fs = std::filesystem;
  TemporaryFolder folder;
  const std::string run = folder / "run";
  start_run(recipe(), run, stop_after(5));
  const auto all = list_checkpoints(run);
  fs::create_directories(run + "/checkpoints/step-9.writing");
  fs::create_directories(run + "/checkpoints/step-2.removing");
  fs::rename(all.front().folder, all.front().folder + ".old");  // its replacement is missing
  std::ofstream(run + "/keys/step-9.safetensors.tmp-77-1") << "half";
  std::ofstream(folder / "cache/tokens.bin.tmp-77-2") << "half";
  const auto trainer = Trainer::resume(run, {});
  for (const char* name : {"run/checkpoints/step-9.writing", "run/checkpoints/step-2.removing",
                           "run/keys/step-9.safetensors.tmp-77-1", "cache/tokens.bin.tmp-77-2"})
    EXPECT_FALSE(fs::exists(folder / name)) << name;
  EXPECT_TRUE(fs::exists(all.front().folder));
}

TEST(Checkpoint, AnotherLibraryOrShapeIsRefused) {
  TemporaryFolder folder;
  TrainHooks hooks;
  hooks.stop_signal = [] { return SIGINT; };
  start_run(recipe(), folder / "run", hooks);
  const RunIdentity identity =
      identity_of(read_run_recipe(folder / "run"), Tokenizer::load(RunPaths{folder / "run"}.tokenizer()));
  for (const char* change : {"some.library_seed=9", "some.init=\"sparse\"", "model.d_model=32"}) {
    Recipe other = recipe({change});
    other.model.vocab = 320;
    Model model(make_context("cpu", "fp32"), other.model, true);
    EXPECT_ERROR(load_checkpoint(find_checkpoint(folder / "run", "latest"), identity, model, true),
                 Code::checkpoint_mismatch)
        << change;
  }
}

TEST(Checkpoint, DamageIsNamed) {
  TemporaryFolder folder;
  TrainHooks hooks;
  hooks.stop_signal = [] { return SIGINT; };
  start_run(recipe(), folder / "run", hooks);
  const std::string file = find_checkpoint(folder / "run", "latest").folder + "/model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  EXPECT_TRUE(is_bad_input(error_in([&] { open_run(folder / "run", {}); }), Code::safetensors_layout, {file}));
}

}  // namespace
}  // namespace some
