// The board in a real browser during a real training.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "browser.h"
#include "cli/run_command.h"
#include "core/files/files.h"

namespace some {
namespace {

namespace fs = std::filesystem;

const std::string tiny = std::string(SOME_SOURCE_DIR) + "/recipes/tiny.toml";

// A running `some board` on FOLDER/runs, with its output.
class OpenBoard {
 public:
  explicit OpenBoard(const std::string& folder, std::vector<std::string> more = {})
      : command_(folder, with_board(std::move(more))) {
    began_ = command_.wait_for_output();
  }
  bool began() const { return began_; }
  std::string address() const { return nlohmann::json::parse(command_.output()).at("address"); }
  CommandResult end() const {
    command_.signal(SIGTERM);
    return command_.finish();
  }

 private:
  static std::vector<std::string> with_board(std::vector<std::string> more) {
    more.insert(more.begin(), {"board", "runs", "--port", "0", "--json", "--threads", "1"});
    return more;
  }
  RunningCommand command_;
  bool began_ = false;
};

TEST(BoardCommand, IsWatchedInABrowserWhileARunTrains) {
  if (const std::string why = no_browser(); !why.empty()) GTEST_SKIP() << why;
  TemporaryFolder folder;
  for (const char* seed : {"1", "2"})
    ASSERT_EQ(run_command(folder.path(), {"train", tiny, "--out", std::string("runs/seed") + seed,
                                          std::string("seed=") + seed, "train.save_keys_every=5"})
                  .code,
              0);
  fs::copy(folder / "runs/seed1", folder / "runs/<img src=x onerror=alert(1)>", fs::copy_options::recursive);
  const OpenBoard board(folder.path());
  ASSERT_TRUE(board.began());
  const char* shots = std::getenv("SOME_SCREENSHOTS");
  const std::string command = fmt::format("node '{}/web/test/board.test.mjs' '{}' '{}' '{}/some' '{}' '{}' {} 2>&1",
                                          SOME_SOURCE_DIR, board.address(), folder / "runs", SOME_BINARY_DIR, tiny,
                                          SOME_BINARY_DIR "/web/node_modules", shots != nullptr ? shots : "");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_EQ(board.end().code, 0);
}

TEST(BoardCommand, TellsWhatIsWrongWithWhatItWasGiven) {
  TemporaryFolder folder;
  const auto told = [&](const std::vector<std::string>& words) {
    const CommandResult result = run_command(folder.path(), words);
    EXPECT_EQ(result.code, 2) << result.err;
    return result;
  };
  EXPECT_TRUE(says(told({"board"}), Code::folder_not_found, {"runs"}));
  EXPECT_TRUE(says(told({"board", "nowhere"}), Code::folder_not_found, {"nowhere"}));
  fs::create_directory(folder / "runs");
  EXPECT_TRUE(says(told({"board", "--host", "nonsense"}), Code::address_unusable, {"nonsense"}));
  EXPECT_TRUE(says(told({"board", "--port", "70000"}), Code::option_invalid, {"--port", "70000"}));
  // Not an address of this machine (RFC 5737): another port would not help.
  const CommandResult elsewhere = told({"board", "--host", "192.0.2.1"});
  EXPECT_TRUE(says(elsewhere, Code::address_unusable, {"192.0.2.1", "--host"}));
  EXPECT_EQ(elsewhere.err.find("--port"), std::string::npos) << elsewhere.err;
}

}  // namespace
}  // namespace some
