// The program from the user's side: exit codes, one clear line per error, JSON as the only standard output, signals.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/run_command.h"
#include "core/files/files.h"
#include "kernels/cpu/gemm.h"
#include "runs/checkpoint.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string tiny = std::string(SOME_SOURCE_DIR) + "/recipes/tiny.toml";

// Expects one line with the error on standard error, nothing on standard output, and nothing created in the folder.
void expect_refused(const std::vector<std::string>& arguments, Code code, const std::vector<std::string>& words) {
  TemporaryFolder folder;
  const CommandResult result = run_command(folder.path(), arguments);
  std::string shown;
  for (const auto& argument : arguments) shown += argument + " ";
  EXPECT_EQ(result.code, 2) << shown << result.err;
  EXPECT_EQ(result.out, "") << shown;
  EXPECT_TRUE(says(result, code, words)) << shown;
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 2) << shown << result.err;
  EXPECT_TRUE(fs::is_empty(folder.path())) << shown;
}

TEST(Cli, TellsItsVersion) {
  const CommandResult result = run_command(SOME_BINARY_DIR, {"--version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.rfind("some ", 0), 0U) << result.out;
}

TEST(Cli, WrongUseIsRefusedInOneLine) {
  expect_refused({}, Code::argument_missing, {});
  expect_refused({"dance"}, Code::command_unknown, {"dance"});
  expect_refused({"train"}, Code::argument_missing, {"recipe"});
  expect_refused({"train", "no-such.toml"}, Code::recipe_not_found, {"no-such.toml"});
  expect_refused({"train", tiny, "some.topk=3"}, Code::setting_unknown, {"some.topk", "some.top_k"});
  expect_refused({"train", tiny, "some.top_k=900"}, Code::setting_out_of_range, {"top_k"});
  expect_refused({"train", tiny, "model.heads=7"}, Code::setting_out_of_range, {"heads"});
  expect_refused({"train", tiny, "model.seq_len=0"}, Code::setting_out_of_range, {"seq_len"});
  expect_refused({"train", tiny, "train.lr=\"fast\""}, Code::setting_type, {"train.lr"});
  expect_refused({"train", tiny, "model.norm=\"sideways\""}, Code::setting_out_of_range, {"norm", "post", "pre"});
  expect_refused({"train", tiny, "data.train=nowhere.txt"}, Code::file_not_found, {"nowhere.txt"});
  expect_refused({"train", tiny, "data.train=builtin:poems"}, Code::text_unknown, {"poems", "stories"});
  expect_refused({"train", tiny, "train.batch=1000000"}, Code::memory_insufficient, {"train.batch"});
  if (!cpu::bf16_gemm_reason().empty())
    expect_refused({"train", tiny, "train.precision=bf16", "--device", "cpu"}, Code::precision_unusable, {"bf16"});
  expect_refused({"train", "--resume", "nowhere"}, Code::run_not_found, {"nowhere"});
  expect_refused({"eval", "nowhere"}, Code::run_not_found, {"nowhere"});
  expect_refused({"generate", "nowhere", "--prompt", "x"}, Code::run_not_found, {"nowhere"});
  expect_refused({"verify", "nowhere.safetensors"}, Code::file_not_found, {"nowhere"});
  expect_refused({"verify", tiny}, Code::safetensors_header, {"tiny.toml"});
  expect_refused({"info", "nowhere.toml"}, Code::recipe_not_found, {"nowhere"});
  expect_refused({"tokenizer", "encode", "--tokenizer", tiny, "x"}, Code::json_syntax, {"tiny.toml"});
  expect_refused({"data", "stories", "--domain", "poems"}, Code::text_unknown, {"poems"});
  expect_refused({"bench", "train", tiny, "--steps", "0"}, Code::option_invalid, {"--steps"});
  expect_refused({"read", "nowhere", "builtin:nature", "--beta", "20", "40"}, Code::argument_unexpected, {"'40'"});
  expect_refused({"read", "nowhere", "builtin:nature", "--counts", "0.5", "--no-counts"}, Code::option_conflict,
                 {"--counts", "--no-counts"});
}

TEST(Cli, TasksOfSrunWithoutMpiAreRefused) {
  for (const auto& [name, value] : {std::pair{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}})
    setenv(name, value, 1);
  expect_refused({"train", tiny}, Code::rank_environment, {"use 'srun --mpi=pmix'"});
  expect_refused({"eval", "nowhere"}, Code::rank_environment, {"use 'srun --mpi=pmix'"});
  EXPECT_EQ(run_command("/", {"--version"}).code, 0) << "what has no ranks does not ask for them";
  setenv("SLURM_PROCID", "1", 1);
  const CommandResult other = run_command("/", {"train", tiny});
  EXPECT_EQ(other.code, 2);
  EXPECT_EQ(other.err, "") << "one line, from rank 0";
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) unsetenv(name);
}

TEST(Cli, NumbersOutOfRangeAreRefused) {
  expect_refused({"data", "stories", "--seed", "-1"}, Code::option_invalid, {"--seed", "-1"});
  expect_refused({"data", "stories", "--count", "18446744073709551616"}, Code::option_invalid,
                 {"--count", "18446744073709551616"});
  expect_refused({"data", "stories", "--count", "9223372036854775807"}, Code::option_invalid, {"--count", "100000000"});
  const CommandResult large = run_command("/", {"data", "stories", "--count", "5000000", "--json"});
  EXPECT_EQ(large.code, 2);
  EXPECT_TRUE(says(large, Code::option_invalid, {"--count", "5000000"}));
  expect_refused({"data", "stories", "--count", "1e3"}, Code::option_invalid, {"--count", "1e3"});
  expect_refused({"data", "stories", "--count", "0x10"}, Code::option_invalid, {"--count", "0x10"});
  expect_refused({"data", "stories", "--first", "-3"}, Code::option_invalid, {"--first"});
  expect_refused({"eval", "nowhere", "--max-documents", "99999999999999999999"}, Code::option_invalid,
                 {"--max-documents", "99999999999999999999"});
  expect_refused({"generate", "nowhere", "--seed", "-1", "--prompt", "x"}, Code::option_invalid, {"--seed"});
  expect_refused({"generate", "nowhere", "--temperature", "nan", "--prompt", "x"}, Code::option_invalid,
                 {"--temperature", "nan"});
  expect_refused({"generate", "nowhere", "--samples", "99999999999", "--prompt", "x"}, Code::option_invalid,
                 {"--samples"});
  expect_refused({"train", tiny, "--threads", "-1"}, Code::option_invalid, {"--threads"});
  expect_refused({"train", tiny, "seed=-1"}, Code::setting_out_of_range, {"seed"});
  expect_refused({"train", tiny, "model.seq_len=1"}, Code::setting_out_of_range, {"model.seq_len"});
  expect_refused({"train", tiny, "data.train_documents=9223372036854775807"}, Code::setting_out_of_range,
                 {"builtin:stories", "100000000"});
  // Leading zeros do not make a number octal.
  TemporaryFolder folder;
  EXPECT_EQ(run_command(folder.path(), {"data", "stories", "--count", "010"}).out,
            run_command(folder.path(), {"data", "stories", "--count", "10"}).out);
}

TEST(Cli, TypingErrorsLeadToTheRightName) {
  TemporaryFolder folder;
  fs::create_directories(folder / "runs/quickstart");
  folder.write("runs/quickstart/config.toml", "");
  const auto told = [&](const std::vector<std::string>& words) {
    const CommandResult result = run_command(folder.path(), words);
    EXPECT_EQ(result.code, 2) << result.err;
    return result;
  };
  EXPECT_TRUE(says(told({"generate", "quikstart", "--prompt", "x"}), Code::run_not_found, {"quikstart", "quickstart"}));
  EXPECT_TRUE(says(told({"generate", "other", "--prompt", "x"}), Code::run_not_found, {"other"}));
  EXPECT_TRUE(
      says(told({"generate", "quickstart", "--temp", "1"}), Code::argument_unexpected, {"--temp", "--temperature"}));
  // --max-tokens and other options begin like this.
  EXPECT_TRUE(says(told({"generate", "quickstart", "--max", "1"}), Code::argument_unexpected, {"--max"}));
  EXPECT_TRUE(says(told({"--vresion"}), Code::argument_unexpected, {"--vresion", "--version"}));
  EXPECT_TRUE(says(told({"train", "--lr", "1"}), Code::argument_unexpected, {"--lr", "train.lr=VALUE"}));
  EXPECT_TRUE(says(told({"settings", "init_from"}), Code::setting_unknown, {"init_from"}));
  EXPECT_TRUE(says(told({"train", tiny, "train.steps=3"}), Code::setting_unknown, {"train.steps", "train.max_steps"}));
  EXPECT_TRUE(says(told({"train", tiny, "--gpu"}), Code::argument_unexpected, {"--gpu", "--device cuda"}));
  // A file with the name of a run, such as the script quickstart in a checkout, is not a recipe; nor is a text.
  folder.write("quickstart", "#!/bin/sh\n");
  EXPECT_TRUE(says(told({"train", "quickstart"}), Code::recipe_not_found, {"quickstart", "runs/quickstart"}));
  folder.write("mine.txt", "Once upon a time\n");
  EXPECT_TRUE(says(told({"train", "mine.txt"}), Code::toml_syntax, {"mine.txt"}));
  EXPECT_TRUE(says(told({"memory", "show", "quickstart"}), Code::memory_missing, {"runs/quickstart"}));
}

TEST(Cli, WhatDoesNotFitInMemoryIsRefusedWithThePrediction) {
  const std::vector<std::string> large = {"model.d_model=16384", "some.experts=65536", "some.d_ffn=16384"};
  std::vector<std::string> train = {"train", tiny}, info = {"info", tiny};
  train.insert(train.end(), large.begin(), large.end());
  info.insert(info.end(), large.begin(), large.end());
  expect_refused(train, Code::memory_insufficient, {"GiB"});
  info.push_back("--json");
  const CommandResult forecast = run_command(SOME_BINARY_DIR, info);
  EXPECT_EQ(forecast.code, 0) << forecast.err;
  EXPECT_EQ(Json::parse(forecast.out)["memory_fits"], false) << forecast.out;
  expect_refused({"train", tiny, "model.d_model=65536", "model.layers=4096", "some.experts=1048576",
                  "some.d_ffn=1048576", "model.heads=1"},
                 Code::setting_out_of_range, {"some.experts", "1048576"});
}

TEST(Cli, AnErrorIsJsonWhereJsonIsAskedFor) {
  TemporaryFolder folder;
  const auto error = [&](const std::vector<std::string>& words) {
    const CommandResult result = run_command(folder.path(), words);
    EXPECT_EQ(result.code, 2) << result.err;
    const Json out = Json::parse(result.out, nullptr, false);
    EXPECT_EQ(out.size(), 1u) << result.out;
    return out.value("error", Json());
  };
  const Json unknown = error({"train", tiny, "some.topk=3", "--json"});
  EXPECT_EQ(unknown["code"], "setting-unknown");
  EXPECT_EQ(unknown["values"], Json::array({"override some.topk=3", "some.topk", "some.top_k"}));
  EXPECT_FALSE(unknown["message"].get<std::string>().empty());
  EXPECT_EQ(unknown.size(), 3u);
  EXPECT_EQ(error({"eval", "nowhere", "--json"})["code"], "run-not-found");
  EXPECT_EQ(error({"eval", "--json"})["code"], "argument-missing");
  EXPECT_EQ(error({"eval", "nowhere", "--jason", "--json"})["values"], Json::array({"--jason", "--json"}));
}

TEST(Cli, EveryCodeIsListed) {
  const std::string help = run_command("/", {"help", "errors"}).out;
  std::size_t in_help = 0;
  for (const CodeMeaning& one : error_codes()) {
    in_help = help.find(fmt::format("\n  {} ", one.name), in_help);
    ASSERT_NE(in_help, std::string::npos) << one.name;
    EXPECT_NE(help.find(one.meaning, in_help), std::string::npos) << one.name;
  }
}

TEST(Cli, ATextWithoutAPredictionLeavesNothingBehind) {
  TemporaryFolder folder;
  std::string words;
  for (int i = 0; i < 200; ++i) words += "a\n<|endoftext|>\n";
  folder.write("words.txt", words);
  const CommandResult result = run_command(folder.path(), {"train", tiny, "data.train=words.txt", "data.eos=false"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_TRUE(says(result, Code::data_nothing_to_predict, {"words.txt"}));
  EXPECT_EQ(folder.entries(), 1u) << "a folder was left behind";
}

TEST(Cli, NamesOfFilesDoNotLeadOutOfTheFolder) {
  TemporaryFolder folder;
  fs::copy_file(tiny, folder / "...toml");  // the run would be named ".."
  const CommandResult result = run_command(folder.path(), {"train", "...toml"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_TRUE(says(result, Code::option_needs_another, {"...toml", "--out"}));
  EXPECT_EQ(folder.entries(), 1u);
  folder.write("recipes/index.toml", "[[series]]\nname = \"a\"\nrecipes = [\"../../x\"]\n");
  const CommandResult lab = run_command(folder.path(), {"lab", "list", "--recipes", "recipes"});
  EXPECT_EQ(lab.code, 2) << lab.err;
  EXPECT_TRUE(says(lab, Code::setting_type, {"index.toml", "../../x"}));
}

TEST(Cli, PipesAndDevicesAreNoData) {
  TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const std::string pipe = folder / "pipe";
  for (const std::string& place : {pipe, std::string("/dev/zero")}) {
    expect_refused({"train", place}, Code::file_not_regular, {place});
    expect_refused({"train", tiny, "data.train=" + place}, Code::file_not_regular, {place});
    expect_refused({"train", tiny, "data.tokenizer=" + place}, Code::file_not_regular, {place});
    expect_refused({"verify", place}, Code::file_not_regular, {place});
    expect_refused({"tokenizer", "encode", "--tokenizer", place, "x"}, Code::file_not_regular, {place});
    expect_refused({"tokenizer", "train", place, "-o", "t.json"}, Code::file_not_regular, {place});
  }
}

// With decreasing memory the program may fail earlier, but it always ends in an orderly way.
TEST(Cli, OutOfMemoryIsOneLine) {
  TemporaryFolder folder;
  const std::string program = std::string("'") + SOME_BINARY_DIR + "/some'";
  ASSERT_EQ(std::system(
                ("cd '" + folder.path() + "' && " + program + " data stories --count 20000 -o text.txt >out").c_str()),
            0);
  const auto run = [&](int megabytes, const std::string& arguments) {
    const std::string line = "cd '" + folder.path() + "' && ulimit -v " + std::to_string(megabytes * 1024) + " && " +
                             program + " " + arguments + " >out 2>err";
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  // Below this limit not even the libraries load, which is not under test.
  int least = 32;
  while (least < 8192 && run(least, "--version") != 0) least += 16;
  int failed = 0;
  for (int more = 0; more <= 160; more += 8) {
    const int code = run(least + more, "tokenizer train --kind bytelevel --vocab 2048 text.txt -o tokenizer.json");
    EXPECT_TRUE(code == 0 || code == 1) << least + more << " MiB: " << code << read_file(folder / "err");
    failed += code == 1;
  }
  EXPECT_GT(failed, 0) << "there was always enough memory";
  // Training, which needs oneDNN and its kernels: without enough memory it also ends, and does not use another library.
  std::string right;
  for (int more = 320; more >= 0; more -= 32) {
    const int code =
        run(least + more, "train '" + tiny + "' train.max_steps=2 train.warmup_steps=1 train.threads=1 --out run");
    const std::string told = read_file(folder / "err");
    EXPECT_TRUE(code == 0 || code == 1) << least + more << " MiB: " << code << told;
    if (code == 1) {
      // Either an allocation of the program failed, or the stack of a thread.
      const CommandResult result{code, "", told};
      EXPECT_TRUE(says(result, Code::out_of_memory) || says(result, Code::system_failed) ||
                  told.find("memory") != std::string::npos)  // or a message of the dynamic loader
          << told;
    } else if (code == 0) {
      const std::string model = read_file(folder / "run/checkpoints/step-2/model.safetensors");
      EXPECT_TRUE(right.empty() || model == right) << least + more << " MiB";
      right = model;
    }
    std::filesystem::remove_all(folder / "run");
  }
  EXPECT_NE(right, "") << "there was never enough memory";
}

TEST(Cli, CudaWithoutAGpuIsOneClearLine) {
  TemporaryFolder folder;
  const CommandResult result = run_command(
      folder.path(), {"train", tiny, "--device", "cuda", "--out", "run", "train.max_steps=1", "train.warmup_steps=0"});
  if (result.code == 0) GTEST_SKIP() << "there is a GPU here";
  EXPECT_NE(result.code, 0);
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(Cli, InfoGivesTheNumbersAsOneObject) {
  TemporaryFolder folder;
  const CommandResult result =
      run_command(folder.path(), {"info", std::string(SOME_SOURCE_DIR) + "/recipes/a4.toml", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json info = Json::parse(result.out);
  EXPECT_EQ(info["total_parameters"], 701496320);
  EXPECT_EQ(info["trainable_parameters"], 29424640);
  EXPECT_EQ(info["tokens_per_step"], 32 * 768);
  EXPECT_GT(info["memory_bytes"].get<std::int64_t>(), 0);
  EXPECT_TRUE(info.contains("steps"));
}

class Trained : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    result_ = run_command(folder_->path(), {"train", tiny, "--out", "run", "--device", "cpu", "--json"});
  }
  static void TearDownTestSuite() { delete folder_; }
  void SetUp() override { ASSERT_EQ(result_.code, 0) << result_.err; }
  static TemporaryFolder* folder_;
  static CommandResult result_;
};
TemporaryFolder* Trained::folder_ = nullptr;
CommandResult Trained::result_;

TEST_F(Trained, ReportsTheRunAsOneObject) {
  const Json out = Json::parse(result_.out);
  EXPECT_EQ(out["run"], "run");
  EXPECT_TRUE(out["finished"].get<bool>());
  for (const char* file : {"config.toml", "tokenizer.json", "metrics.jsonl", "events.out.tfevents"})
    EXPECT_TRUE(fs::exists(*folder_ / ("run/" + std::string(file)))) << file;
}

TEST_F(Trained, EvaluatesTheSameAsTraining) {
  const CommandResult result = run_command(folder_->path(), {"eval", "run", "--json", "--device", "cpu"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out)["loss"], Json::parse(result_.out)["loss"]);
  EXPECT_EQ(run_command(folder_->path(), {"eval", "run", "--data", "builtin:recipes", "--max-documents", "5"}).code, 0);
  EXPECT_EQ(run_command(folder_->path(), {"eval", "run", "--checkpoint", "123456789"}).code, 2);
}

TEST_F(Trained, TablesFitANarrowTerminal) {
  for (const std::vector<std::string>& call :
       {std::vector<std::string>{"inspect", "run", "--no-pictures", "--device", "cpu"},
        {"guilds", "run", "--shuffles", "20", "--device", "cpu"}}) {
    SCOPED_TRACE(call[0]);
    const CommandResult result = run_command(folder_->path(), call);
    ASSERT_EQ(result.code, 0) << result.err;
    std::istringstream lines(result.out);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      // Counts columns, not bytes: a UTF-8 character takes one column.
      const auto columns = std::count_if(line.begin(), line.end(),
                                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
      EXPECT_LE(columns, 80) << line;
    }
    EXPECT_GT(count, 8);
  }
}

TEST_F(Trained, GeneratesTheSameTextForTheSameSeed) {
  const std::vector<std::string> call = {"generate", "run", "--prompt",     "Once upon", "--prompt", "The end",
                                         "--seed",   "7",   "--max-tokens", "20",        "--json"};
  const CommandResult first = run_command(folder_->path(), call), second = run_command(folder_->path(), call);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  const Json out = Json::parse(first.out);
  ASSERT_EQ(out["samples"].size(), 2u);
  EXPECT_EQ(out["samples"][0]["text"].get<std::string>().rfind("Once upon", 0), 0u);
  // The text for a prompt does not depend on the other texts in the batch.
  const Json alone = Json::parse(run_command(folder_->path(), {"generate", "run", "--prompt", "Once upon", "--seed",
                                                               "7", "--max-tokens", "20", "--json"})
                                     .out);
  EXPECT_EQ(alone["samples"][0]["text"], out["samples"][0]["text"]);
  // Greedy, nucleus and top-k sampling.
  EXPECT_EQ(
      run_command(folder_->path(), {"generate", "run", "--prompt", "A", "--temperature", "0", "--max-tokens", "5"})
          .code,
      0);
  EXPECT_EQ(run_command(folder_->path(),
                        {"generate", "run", "--prompt", "A", "--top-p", "0.5", "--top-k", "3", "--max-tokens", "5"})
                .code,
            0);
}

TEST_F(Trained, WrongGenerationIsRefused) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--prompt", ""},
                                             {},
                                             {"--prompt", "A", "--temperature", "-1"},
                                             {"--prompt", "A", "--top-p", "0"},
                                             {"--prompt", "A", "--top-k", "-2"},
                                             {"--prompt", "A", "--max-tokens", "0"}}) {
    std::vector<std::string> call = {"generate", "run"};
    call.insert(call.end(), wrong.begin(), wrong.end());
    const CommandResult result = run_command(folder_->path(), call);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

// seq_len is 64: the context window slides over the prompt and over generated text.
TEST_F(Trained, LongTextsSlide) {
  const CommandResult result = run_command(
      folder_->path(), {"generate", "run", "--prompt", "A", "--max-tokens", "200", "--ignore-eos", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json sample = Json::parse(result.out)["samples"][0];
  EXPECT_EQ(sample["tokens"].size(), 200u);
  EXPECT_EQ(sample["stopped"], "length");
  std::string story;
  for (int i = 0; i < 60; ++i) story += "One day a little fox went out to play. ";
  const CommandResult read = run_command(folder_->path(), {"generate", "run", "--prompt", story, "--max-tokens", "5"});
  ASSERT_EQ(read.code, 0) << read.err;
  EXPECT_EQ(read.out.rfind(story, 0), 0u);
  EXPECT_NE(read.err.find("tokens/s"), std::string::npos) << read.err;
  // A trace reads the text in one pass.
  EXPECT_EQ(run_command(folder_->path(), {"trace", "run", "--prompt", story}).code, 2);
}

TEST_F(Trained, PromptsComeFromStandardInput) {
  const std::string two = "Once upon a time\n\nThe end\n";
  const CommandResult lines = run_command(folder_->path(), {"generate", "run", "--max-tokens", "4", "--json"}, two);
  ASSERT_EQ(lines.code, 0) << lines.err;
  const Json samples = Json::parse(lines.out)["samples"];
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[1]["prompt"], "The end");
  const CommandResult whole =
      run_command(folder_->path(), {"generate", "run", "--file", "-", "--max-tokens", "4", "--json"}, two);
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(Json::parse(whole.out)["samples"][0]["prompt"], "Once upon a time\n\nThe end");
  // More prompts than fit a batch: each keeps its index, so its text is the same as with few prompts.
  std::string many;
  for (int i = 0; i < 40; ++i) many += "Once upon a time\n";
  const Json all = Json::parse(
      run_command(folder_->path(), {"generate", "run", "--max-tokens", "4", "--json"}, many).out)["samples"];
  ASSERT_EQ(all.size(), 40u);
  EXPECT_EQ(all[0]["text"], samples[0]["text"]);
  std::set<std::string> texts;
  for (const Json& one : all) texts.insert(one["text"].get<std::string>());
  EXPECT_GT(texts.size(), 20u);
}

TEST_F(Trained, ChatWorksWithoutATerminal) {
  const CommandResult result = run_command(folder_->path(), {"chat", "run", "--max-tokens", "6", "--seed", "3"},
                                           "Once upon\n/temperature 0\n/temperature hot\n/tmperature 1\n\n/again\n"
                                           "/settings\n/trace\n/trace page.html\n/quit\nnever read\n");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out.rfind("Once upon", 0), 0u) << result.out;
  // One message for the invalid value, one for the misspelled command; both name the command.
  const std::string mistakes = result.err.substr(std::min(result.err.find("/temperature"), result.err.size()));
  EXPECT_NE(mistakes.find("/temperature", 1), std::string::npos) << result.err;
  EXPECT_NE(mistakes.find("/tmperature"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("temperature 0, "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("next seed 6"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("layer 0"), std::string::npos) << result.out;
  EXPECT_TRUE(fs::exists(*folder_ / "page.html"));
  EXPECT_EQ(result.out.find("never read"), std::string::npos);
  // With temperature 0 the empty line and /again continue from the same text to the same end.
  const std::size_t first = result.out.find("\n\n", 10) + 2, second = result.out.find("\n\n", first) + 2;
  EXPECT_EQ(result.out.substr(first, second - first), result.out.substr(second, second - first)) << result.out;
  // Empty input is not an error; a missing run is.
  EXPECT_EQ(run_command(folder_->path(), {"chat", "run"}).code, 0);
  EXPECT_EQ(run_command(folder_->path(), {"chat", "nowhere"}).code, 2);
}

TEST_F(Trained, ARunFolderStandsForItsTokenizer) {
  EXPECT_EQ(
      run_command(folder_->path(), {"tokenizer", "encode", "--tokenizer", "run", "Once upon"}).out,
      run_command(folder_->path(), {"tokenizer", "encode", "--tokenizer", "run/tokenizer.json", "Once upon"}).out);
  EXPECT_EQ(run_command(folder_->path(), {"tokenizer", "encode", "--tokenizer", ".", "Once upon"}).code, 2);
}

TEST_F(Trained, AFolderWithARunIsNotOverwritten) {
  const CommandResult result = run_command(folder_->path(), {"train", tiny, "--out", "run"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result, Code::run_exists, {"run"}));
  // Resuming a finished run is not an error and changes nothing.
  const std::string before = read_file(*folder_ / "run/metrics.jsonl");
  const CommandResult again = run_command(folder_->path(), {"train", "--resume", "run", "--json"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(Json::parse(again.out)["finished"], true) << again.out;
  EXPECT_EQ(read_file(*folder_ / "run/metrics.jsonl"), before);
}

// On a signal the step is finished, the run is saved and the exit code names the signal; the resumed run ends like an
// uninterrupted one.
TEST_F(Trained, SignalsSaveAndTheRunGoesOn) {
  const auto last = [](const std::string& run) {
    const auto all = list_checkpoints(run);
    return read_file(all.back().folder + "/model.safetensors");
  };
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) {
    const std::string name = "stopped" + std::to_string(number);
    const RunningCommand command(folder_->path(),
                                 {"train", tiny, "--out", name, "--device", "cpu", "train.checkpoint_every=5"});
    ASSERT_TRUE(command.wait_for("step 1/"));
    usleep(50000);
    command.signal(number);
    const CommandResult stopped = command.finish();
    if (stopped.code == 0) continue;  // the run finished before the signal
    EXPECT_EQ(stopped.code, 128 + number) << stopped.err;
    if (number != SIGKILL) {
      EXPECT_NE(stopped.err.find("--resume"), std::string::npos);
    }
    const CommandResult resumed = run_command(folder_->path(), {"train", "--resume", name});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(read_file(*folder_ / (name + "/metrics.jsonl")), read_file(*folder_ / "run/metrics.jsonl")) << number;
    EXPECT_EQ(last(*folder_ / name), last(*folder_ / "run")) << number;
  }
}

// A list shows the step that a run was saved at, whatever its metrics have reached.
TEST_F(Trained, RunsAreListedWithTheirSavedStep) {
  const TemporaryFolder folder;
  const RunningCommand command(folder.path(), {"train", tiny, "--out", "runs/stopped", "--device", "cpu",
                                               "train.measure_every=1000", "train.max_steps=4000", "train.epochs=400"});
  ASSERT_TRUE(command.wait_for("step 1/"));
  usleep(50000);
  command.signal(SIGINT);
  ASSERT_EQ(command.finish().code, 130);
  ASSERT_EQ(run_command(folder.path(), {"export", *folder_ / "run", "-o", "model"}).code, 0);
  ASSERT_EQ(run_command(folder.path(), {"import", "model", "--out", "runs/imported"}).code, 0);
  const CommandResult list = run_command(folder.path(), {"runs", "--json"});
  ASSERT_EQ(list.code, 0) << list.err;
  const Json runs = Json::parse(list.out)["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["step"], list_checkpoints(*folder_ / "run").back().step);
  EXPECT_EQ(runs[1]["step"], list_checkpoints(folder / "runs/stopped").back().step);
  EXPECT_GT(runs[1]["step"], 0);
  // One line per run; settings only if requested.
  const CommandResult table = run_command(folder.path(), {"runs"});
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 3) << table.out;
  EXPECT_NE(table.err.find("--settings"), std::string::npos) << table.err;
  EXPECT_NE(run_command(folder.path(), {"runs", "--settings"}).out.find("train.measure_every = 1000"),
            std::string::npos);
}

// A run in the folder runs is found by its name, unless the name is a path.
TEST_F(Trained, RunsAreFoundByTheirNames) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "runs");
  fs::create_directory_symlink(*folder_ / "run", folder / "runs/mine");
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{{"eval", "mine", "--max-documents", "2"},
                                             {"generate", "mine", "--prompt", "A", "--max-tokens", "2"},
                                             {"info", "mine"},
                                             {"compare", "mine", "runs/mine"},
                                             {"export", "mine", "-o", "model"}}) {
    const CommandResult result = run_command(folder.path(), line);
    EXPECT_EQ(result.code, 0) << line[0] << ": " << result.err;
  }
  EXPECT_NE(run_command(folder.path(), {"info", "mine"}).out.find("runs/mine"), std::string::npos);
  fs::create_directory(folder / "mine");  // a path comes first
  EXPECT_EQ(run_command(folder.path(), {"eval", "mine"}).code, 2);
  EXPECT_EQ(run_command(folder.path(), {"eval", "other"}).code, 2);
}

TEST(Cli, DoctorNamesWhatIsMissing) {
  const TemporaryFolder folder;
  const CommandResult result = run_command(folder.path(), {"doctor", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  int cpus = 0;
  const Json report = Json::parse(result.out);
  for (const Json& part : report["parts"]) {
    EXPECT_FALSE(part["what"].get<std::string>().empty()) << part;
    if (part["found"]) {
      EXPECT_EQ(part["command"], "") << part;
    }
    cpus += part["part"] == "CPU";
  }
  EXPECT_EQ(cpus, 1);
  const CommandResult text = run_command(folder.path(), {"doctor"});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.out.find("some "), 0U) << text.out;
  EXPECT_NE(text.out.find("recipes"), std::string::npos) << text.out;
}

TEST(Cli, TokenizersAreTrainedAndUsed) {
  TemporaryFolder folder;
  const CommandResult made =
      run_command(folder.path(), {"data", "stories", "--count", "50", "-o", "stories.txt", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(Json::parse(made.out)["file"], "stories.txt");
  const CommandResult trained = run_command(folder.path(), {"tokenizer", "train", "--kind", "bytelevel", "--vocab",
                                                            "400", "stories.txt", "-o", "tok.json", "--json"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(Json::parse(trained.out)["vocab"], 400);
  const std::string text = "Hello,  wörld \xF0\x9F\x99\x82!";
  const Json encoded =
      Json::parse(run_command(folder.path(), {"tokenizer", "encode", "--tokenizer", "tok.json", "--json", text}).out);
  std::vector<std::string> call = {"tokenizer", "decode", "--tokenizer", "tok.json", "--json"};
  for (const auto& id : encoded["encodings"][0]["ids"]) call.push_back(std::to_string(id.get<int>()));
  EXPECT_EQ(Json::parse(run_command(folder.path(), call).out)["text"], text);
  EXPECT_EQ(run_command(folder.path(), {"tokenizer", "decode", "--tokenizer", "tok.json", "99999"}).code, 2);
}

TEST(Cli, VerifyTellsPassFromFail) {
  const std::string fixtures = std::string(SOME_SOURCE_DIR) + "/../shared/fixtures";
  if (!fs::exists(fixtures)) GTEST_SKIP() << "needs ../shared/fixtures: not here";
  TemporaryFolder folder;
  EXPECT_EQ(run_command(folder.path(), {"verify", fixtures}).code, 0);
  EXPECT_EQ(run_command(folder.path(), {"verify", fixtures, "--precision", "f64"}).code, 0);
  const std::string next = std::string(SOME_SOURCE_DIR) + "/../shared/fixtures-next/";
  for (const char* name : {"keys-narrow", "layer-input-proj", "layer-input-proj-linear", "model-input-proj",
                           "model-input-proj-padded", "memory-roomy", "memory-full"}) {
    const std::string path = next + name + ".safetensors";
    if (!fs::exists(path)) continue;
    EXPECT_EQ(run_command(folder.path(), {"verify", path}).code, 0) << name;
    EXPECT_EQ(run_command(folder.path(), {"verify", path, "--precision", "f64"}).code, 0) << name;
  }
  const CommandResult strict = run_command(folder.path(), {"verify", fixtures, "--tolerance", "1e-12", "--json"});
  EXPECT_EQ(strict.code, 1);
  EXPECT_FALSE(Json::parse(strict.out)["passed"].get<bool>());
}

TEST(Help, IsTheSameByEitherWay) {
  TemporaryFolder folder;
  EXPECT_EQ(run_command(folder.path(), {"help"}).out, run_command(folder.path(), {"--help"}).out);
  EXPECT_EQ(run_command(folder.path(), {"help", "lab", "run"}).out,
            run_command(folder.path(), {"lab", "run", "--help"}).out);
}

}  // namespace
}  // namespace some
