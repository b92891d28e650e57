// Mixed files of different steps, runs or tokenizers in one run folder are rejected with a message that names the file.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/files/files.h"
#include "expect_error.h"
#include "runs/history.h"
#include "runs/run.h"
#include "temporary_folder.h"
#include "train/initialize_from.h"
#include "train/small_run.h"

namespace some {
namespace {

namespace fs = std::filesystem;

// Two runs that differ in their seed, each with checkpoints of several steps.
class MixedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b"}) {
      Recipe one = recipe(
          {"train.checkpoint_every=2", "train.keep_checkpoints=9", std::string("seed=") + (*name == 'a' ? "1" : "2")});
      start_run(one, folder_ / name, stop_after(5));
    }
    first_ = list_checkpoints(folder_ / "a").front();
    last_ = list_checkpoints(folder_ / "a").back();
    ASSERT_LT(first_.step, last_.step);
  }

  // Copies `from` over `to`, expects every command that loads weights to refuse the run with a message that names the
  // file `named`, then restores `to`.
  void expect_refused(const fs::path& from, const fs::path& to, Code code, const std::string& named) {
    SCOPED_TRACE(from.string() + " -> " + to.string());
    const fs::path kept = folder_ / "kept";
    fs::rename(to, kept);
    fs::copy(from, to, fs::copy_options::recursive);
    const std::string run = folder_ / "a";
    const auto check = [&](const auto& act) {
      try {
        act();
        ADD_FAILURE() << "was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
      }
    };
    check([&] { open_run(run, {}); });
    check([&] { resume_run(run, {}, {}); });
    check([&] { start_run(recipe(), folder_ / "from", {}, FromOptions{run}); });
    fs::remove_all(to);
    fs::remove_all(folder_ / "from");
    fs::rename(kept, to);
    open_run(run, {});
  }

  TemporaryFolder folder_;
  CheckpointName first_, last_;
};

TEST_F(MixedCheckpoint, FilesOfAnotherStep) {
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
    expect_refused(first_.folder + file, last_.folder + file, Code::checkpoint_mixed, last_.folder + file);
  expect_refused(first_.folder, last_.folder, Code::checkpoint_mixed, last_.folder);
}

TEST_F(MixedCheckpoint, FilesOfAnotherRun) {
  const std::string other = folder_ / "b/checkpoints/step-" + std::to_string(last_.step);
  ASSERT_TRUE(fs::exists(other));
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
    expect_refused(other + file, last_.folder + file, Code::checkpoint_mixed, last_.folder + file);
  expect_refused(other, last_.folder, Code::checkpoint_mixed, last_.folder);
  expect_refused(folder_ / "b/config.toml", folder_ / "a/config.toml", Code::checkpoint_mixed, last_.folder);
}

// A run that was resumed from an earlier checkpoint with another length has the same id, and other moments.
TEST_F(MixedCheckpoint, FilesOfTheSameRunAndStepThatWereNotWrittenTogether) {
  fs::copy(folder_ / "a", folder_ / "c", fs::copy_options::recursive);
  fs::remove_all(folder_ / "c/checkpoints");
  fs::create_directories(folder_ / "c/checkpoints");
  fs::copy(first_.folder, folder_ / "c/checkpoints/step-" + std::to_string(first_.step), fs::copy_options::recursive);
  fs::remove(folder_ / "c/latest");
  std::string config = read_file(folder_ / "c/config.toml");
  const std::size_t at = config.find("\nlr = ");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, config.find('\n', at + 1) - at, "\nlr = 0.0001234");
  write_file_atomic(folder_ / "c/config.toml", config);
  resume_run(folder_ / "c", {}, stop_after(static_cast<int>(last_.step - first_.step)));
  const std::string other = folder_ / "c/checkpoints/step-" + std::to_string(last_.step);
  ASSERT_TRUE(fs::exists(other));
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
    expect_refused(other + file, last_.folder + file, Code::checkpoint_mixed, last_.folder + file);
}

TEST_F(MixedCheckpoint, KeyPositionsOfAnotherRunOrStep) {
  const OpenedRun run = open_run(folder_ / "a", {});
  const auto positions = list_key_positions(folder_ / "a");
  ASSERT_GE(positions.size(), 2U);
  const CheckpointName& one = positions[0];
  const std::string good = read_file(one.folder);
  const auto load = [&] { return load_key_positions(folder_ / "a", run.recipe.run_id, one.step, *run.model); };
  EXPECT_FALSE(load().empty());
  write_file_atomic(one.folder, read_file(folder_ / "b/keys/step-" + std::to_string(one.step) + ".safetensors"));
  EXPECT_ERROR(load(), Code::checkpoint_mixed, one.folder);
  EXPECT_ERROR(open_key_positions(one, run.recipe.run_id), Code::checkpoint_mixed, one.folder);
  write_file_atomic(one.folder, read_file(positions[1].folder));
  EXPECT_ERROR(load(), Code::checkpoint_mixed, one.folder);
  write_file_atomic(one.folder, good);
  EXPECT_FALSE(load().empty());
}

TEST_F(MixedCheckpoint, MetricsOfAnotherRunAreReported) {
  const std::string metrics = folder_ / "a/metrics.jsonl";
  std::vector<std::string> warnings;
  const Log log([&](const LogMessage& message) {
    EXPECT_EQ(message.code, Code::metrics_damaged) << message.text;
    warnings.push_back(message.text);
  });
  const auto history = [&] { return read_history(*find_run(folder_ / "a", log), log); };
  EXPECT_FALSE(history().train.empty());
  EXPECT_TRUE(warnings.empty());
  const std::string good = read_file(metrics);
  write_file_atomic(metrics, good + good.substr(0, good.find('\n') + 1));  // lines after the checkpoint
  history();
  EXPECT_TRUE(warnings.empty());
  write_file_atomic(metrics, read_file(folder_ / "b/metrics.jsonl"));
  history();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find(metrics), std::string::npos) << warnings[0];
}

TEST_F(MixedCheckpoint, AnotherTokenizer) {
  std::string text = read_file(folder_ / "a/tokenizer.json");
  // The same vocabulary size, but two ids with exchanged meanings.
  Tokenizer own = Tokenizer::load(folder_ / "a/tokenizer.json");
  const std::string x = own.token(static_cast<TokenId>(own.vocab_size() - 1)),
                    y = own.token(static_cast<TokenId>(own.vocab_size() - 2));
  nlohmann::json json = nlohmann::json::parse(text);
  auto& vocab = json["model"]["vocab"];
  std::swap(vocab[x], vocab[y]);
  write_file_atomic(folder_ / "other.json", json.dump());
  ASSERT_EQ(Tokenizer::load(folder_ / "other.json").vocab_size(), own.vocab_size());
  expect_refused(folder_ / "other.json", folder_ / "a/tokenizer.json", Code::tokenizer_mismatch, last_.folder);
}

TEST_F(MixedCheckpoint, RunsThatDifferOnlyInLoggingAndLengthHaveOneId) {
  start_run(recipe({"train.checkpoint_every=3", "train.keep_checkpoints=9", "seed=1"}), folder_ / "d", stop_after(2));
  EXPECT_EQ(read_run_recipe(folder_ / "a").run_id, read_run_recipe(folder_ / "d").run_id);
  EXPECT_NE(read_run_recipe(folder_ / "a").run_id, read_run_recipe(folder_ / "b").run_id);
}

}  // namespace
}  // namespace some
