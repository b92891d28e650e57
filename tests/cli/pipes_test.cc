// Training with a reader that disconnects, and files that reach the shell's size limit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cli/run_command.h"
#include "core/files/files.h"
#include "runs/checkpoint.h"

namespace some {
namespace {

namespace fs = std::filesystem;

const std::string train = "'" SOME_BINARY_DIR "/some' train '" SOME_SOURCE_DIR
                          "/recipes/tiny.toml' train.max_steps=30 data.valid_documents=20 --device cpu --out ";

// Runs a line of bash in `folder`; returns its exit code.
int bash(const std::string& folder, const std::string& line) {
  const int status =
      std::system(("cd '" + folder + "' && bash -c \"set -o pipefail; " + line + "\"").c_str());  // NOLINT: a test
  return WEXITSTATUS(status);
}

TEST(Pipes, TrainingContinuesIfTheReaderOfItsLogLeaves) {
  const TemporaryFolder folder;
  bash(folder.path(), train + "read 2>&1 | head -n 1 > first");
  bash(folder.path(), train + "whole 2> all");
  EXPECT_NE(read_file(folder / "first"), "");
  EXPECT_EQ(read_file(folder / "read/metrics.jsonl"), read_file(folder / "whole/metrics.jsonl"));
  EXPECT_EQ(list_checkpoints(folder / "read").back().step, 30);
}

// Every limit ends in one line with a reason, or in success; no partial file is left.
TEST(Pipes, AFileBeyondTheLimitOfTheShellIsAnErrorNotASignal) {
  const TemporaryFolder folder;
  bool failed = false;
  for (const int kibibytes : {1, 8, 100, 300, 600, 4000}) {
    SCOPED_TRACE(kibibytes);
    const std::string run = "run" + std::to_string(kibibytes);
    const int code =
        bash(folder.path(), "ulimit -f " + std::to_string(kibibytes) + "; " + train + run + " 2>&1 | cat > told");
    const std::string told = read_file(folder / "told");
    failed = failed || code != 0;
    EXPECT_TRUE(code == 0 || code == 1 || code == 2) << code << told;
    EXPECT_EQ(code != 0, told.find("ulimit -f") != std::string::npos) << told;
    if (!fs::exists(folder / run)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder / run)) {
      const std::string name = entry.path().filename().string();
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
      EXPECT_EQ(name.find(".writing"), std::string::npos) << name;
    }
  }
  EXPECT_TRUE(failed);
  EXPECT_EQ(list_checkpoints(folder / "run4000").back().step, 30);
}

}  // namespace
}  // namespace some
