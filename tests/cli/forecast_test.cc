// Compares the memory that `some info` predicts with the memory that the whole process uses, on the CPU.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/run_command.h"

namespace some {
namespace {

// Runs the program; returns the most memory that it used, in bytes.
double peak_of(const std::string& folder, std::vector<std::string> words) {
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(folder.c_str()) != 0) _exit(120);
    for (const int output : {1, 2}) dup2(open("/dev/null", O_WRONLY), output);
    std::string program = std::string(SOME_BINARY_DIR) + "/some";
    std::vector<char*> line{program.data()};
    for (std::string& word : words) line.push_back(word.data());
    line.push_back(nullptr);
    execv(program.c_str(), line.data());
    _exit(121);
  }
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << words[0] << " " << words[1];
  return static_cast<double>(used.ru_maxrss) * 1024;
}

TEST(Forecast, MemoryIsWithinATenthOfWhatARunUses) {
  struct Case {
    const char *name, *recipe;
    std::vector<std::string> settings;
  };
  const std::vector<std::string> small = {"data.train=builtin:stories",
                                          "data.train_documents=600",
                                          "data.valid_documents=40",
                                          "data.tokenizer=bytelevel",
                                          "data.valid=",
                                          "data.vocab=2048",
                                          "model.seq_len=256",
                                          "some.experts=32"};
  const auto with = [](std::vector<std::string> settings, const std::vector<std::string>& more) {
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  };
  const Case cases[] = {
      {"default", "default", {"train.max_steps=6"}},
      {"tiny", "tiny", {"train.max_steps=6"}},
      {"without weights", "default", {"train.max_steps=3", "some.init=hadamard"}},
      {"long context",
       "default",
       {"train.max_steps=3", "model.seq_len=1024", "train.batch=8", "data.train_documents=300"}},
      {"mod-shift", "mod-shift", with(small, {"train.max_steps=2", "train.batch=4"})},
      {"features", "features", with(small, {"train.max_steps=2", "train.batch=4"})},
      {"dense", "dense-match", with(small, {"train.max_steps=2", "train.batch=4"})},
      {"memory", "default", {"train.max_steps=2", "memory.slots=262144", "data.train_documents=200"}},
      {"several micro-batches", "default", {"train.max_steps=2", "train.accumulate=4", "train.batch=8"}},
  };
  const TemporaryFolder folder;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    std::vector<std::string> words{"info", std::string(SOME_SOURCE_DIR) + "/recipes/" + one.recipe + ".toml",
                                   "train.device=cpu", "train.precision=fp32", "train.threads=2"};
    words.insert(words.end(), one.settings.begin(), one.settings.end());
    std::vector<std::string> info = words;
    info.push_back("--json");
    const CommandResult told = run_command(folder.path(), info);
    ASSERT_EQ(told.code, 0) << told.err;
    const double predicted = nlohmann::json::parse(told.out)["memory_bytes"];
    words[0] = "train";
    words.insert(words.end(), {"--out", std::string("runs/") + one.name});
    const double used = peak_of(folder.path(), words);
    EXPECT_GT(predicted, 0.9 * used) << predicted / (1 << 20) << " MiB predicted, " << used / (1 << 20) << " used";
    EXPECT_LT(predicted, 1.1 * used) << predicted / (1 << 20) << " MiB predicted, " << used / (1 << 20) << " used";
  }
}

// A line is one document. Each byte of a longer line may take three more, next to what training a tokenizer takes for
// any text. (The words repeat, as in a language: a tokenizer needs memory for each different one.)
TEST(Forecast, EachByteOfALongerLineTakesAtMostThree) {
  const TemporaryFolder folder;
  constexpr std::size_t shorter = 10'000'000, longer = 40'000'000;
  std::string line;
  line.reserve(longer + 64);
  std::uint64_t state = 1;
  while (line.size() < longer) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    for (std::uint64_t word = (state >> 40) % 20'000 * 7919; word > 0; word /= 11) line += "etaoinshrdl"[word % 11];
    line += ' ';
  }
  const auto peak = [&](std::size_t size) {
    const std::string text = std::to_string(size) + ".txt";
    folder.write(text, line.substr(0, size));
    return peak_of(folder.path(), {"train", std::string(SOME_SOURCE_DIR) + "/recipes/tiny.toml", "data.train=" + text,
                                   "data.train_documents=0", "data.valid_documents=0", "train.max_steps=1",
                                   "train.device=cpu", "train.threads=2", "--out", "runs/" + std::to_string(size)});
  };
  EXPECT_LT(peak(longer) - peak(shorter), 3.0 * (longer - shorter));
}

// Texts that never repeat a word, such as tables of identifiers, are the worst case of training a tokenizer.
TEST(Forecast, EachDifferentWordTakesAtMost160Bytes) {
  const TemporaryFolder folder;
  const auto peak = [&](std::size_t words) {
    std::string text;
    for (std::uint64_t i = 0; i < words; ++i) {
      // Different words of 8 letters: a bijection of i.
      for (std::uint64_t left = i * 137'438'953'481 % 208'827'064'576, n = 0; n < 8; ++n, left /= 26)
        text += static_cast<char>('a' + left % 26);
      text += i % 16 == 15 ? '\n' : ' ';
    }
    const std::string name = std::to_string(words) + ".txt";
    folder.write(name, text);
    return peak_of(folder.path(), {"tokenizer", "train", name, "--vocab", "400", "-o", name + ".json"});
  };
  constexpr std::size_t fewer = 100'000, more = 500'000;
  EXPECT_LT(peak(more) - peak(fewer), 160.0 * (more - fewer));
}

}  // namespace
}  // namespace some
