// The program in a terminal, and with unwritable output.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/run_command.h"
#include "core/files/files.h"

namespace some {
namespace {

const std::string program = std::string(SOME_BINARY_DIR) + "/some";
const std::string tiny = std::string(SOME_SOURCE_DIR) + "/recipes/tiny.toml";

struct Seen {
  int code = -1;
  std::string shown;
};

// Keys to type when `when` appears after the previous match.
struct Typed {
  std::string when, keys;
  std::size_t then = 0;  // and this number of further bytes was shown
};

// Returns the output of `some ARGUMENTS` in a terminal with this many columns, while keys are typed.
Seen in_a_terminal(const std::string& folder, const std::string& arguments, unsigned short columns,
                   const std::vector<Typed>& typed = {}) {
  winsize size{24, columns, 0, 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) {  // continuing would kill process -1, which means all processes
    ADD_FAILURE() << "there is no terminal to be had: " << std::strerror(errno);
    return {};
  }
  if (child == 0) {
    const std::string line = "cd '" + folder + "' && exec '" + program + "' " + arguments;
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(121);
  }
  Seen seen;
  char piece[4096];
  std::size_t next = 0, from = 0;
  for (;;) {
    pollfd waiting{terminal, POLLIN, 0};
    if (poll(&waiting, 1, 60000) == 0) kill(child, SIGKILL);  // the program waits for input that this test never types
    const ssize_t got = read(terminal, piece, sizeof piece);
    if (got <= 0) break;
    seen.shown.append(piece, static_cast<std::size_t>(got));
    while (next < typed.size()) {
      const std::size_t at = seen.shown.find(typed[next].when, from);
      if (at == std::string::npos || seen.shown.size() < at + typed[next].when.size() + typed[next].then) break;
      from = at + typed[next].when.size();
      const std::string& keys = typed[next++].keys;
      if (write(terminal, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) break;
    }
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) seen.code = WEXITSTATUS(status);
  return seen;
}

int in_a_shell(const std::string& folder, const std::string& arguments) {
  const int status = std::system(("cd '" + folder + "' && '" + program + "' " + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Terminal, TheProgressBarIsRedrawnInPlaceAtEveryWidth) {
  TemporaryFolder folder;
  for (const unsigned short columns : {200, 80, 40, 10}) {
    const auto [code, shown] =
        in_a_terminal(folder.path(), "train " + tiny + " --out run" + std::to_string(columns), columns);
    EXPECT_EQ(code, 0) << shown;
    int bars = 0;
    std::istringstream pieces(shown);
    for (std::string piece; std::getline(pieces, piece, '\r');) {
      if (piece.find("░") == std::string::npos && piece.find("█") == std::string::npos) continue;
      ++bars;
      ASSERT_EQ(piece.rfind("\033[K", 0), 0u) << piece;
      std::size_t width = 0;
      for (const char c : piece.substr(3)) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      EXPECT_LT(width, columns) << piece;
      if (columns >= 40) {
        EXPECT_NE(piece.find("step "), std::string::npos) << piece;
        EXPECT_NE(piece.find("loss "), std::string::npos) << piece;
      }
      // The first step says nothing about the speed of the others.
      const bool known = piece.find("step 1/") == std::string::npos;
      EXPECT_TRUE(columns < 80 || !known || piece.find(" left") != std::string::npos) << piece;
      EXPECT_TRUE(columns < 200 || piece.find("TFLOP/s") != std::string::npos) << piece;
    }
    EXPECT_GT(bars, 0) << shown;
  }
}

TEST(Terminal, ControlCWhileTextIsReadEndsAtOnceAndLeavesNoRun) {
  TemporaryFolder folder;
  const auto [code, shown] =
      in_a_terminal(folder.path(), "train " + tiny + " --out runs/long data.train_documents=50000000", 80,
                    {{"reading the training", "\003"}});
  EXPECT_EQ(code, 130) << shown;
  EXPECT_FALSE(std::filesystem::exists(folder / "runs/long"));
}

// Text from untrusted sources must not control the reader's terminal.
TEST(Terminal, ControlCharactersAreWrittenOut) {
  TemporaryFolder folder;
  const std::string recipe = folder.write("sly.toml", "title = \"a\\u001b[2Jb\\u202ec\\u009bd\"\n" +
                                                          read_file(tiny).substr(read_file(tiny).find("[model]")));
  const auto [code, shown] = in_a_terminal(folder.path(), "info sly.toml", 80);
  EXPECT_EQ(code, 0) << shown;
  EXPECT_NE(shown.find("a\\x1b[2Jb\\u202ec\\x9bd"), std::string::npos) << shown;
  EXPECT_EQ(shown.find('\x1b'), std::string::npos) << shown;
  // In a pipe or a file every byte is unchanged.
  const CommandResult piped = run_command(folder.path(), {"info", "sly.toml"});
  EXPECT_NE(piped.out.find("a\x1b[2Jb"), std::string::npos) << piped.out;
  // Messages are always one line.
  const CommandResult refused = run_command(folder.path(), {"train", "no\nsuch\x1b[31m.toml"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("no\\nsuch\\x1b[31m.toml"), std::string::npos) << refused.err;
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
}

TEST(Terminal, ChatAnswersStopsAndRemembers) {
  TemporaryFolder folder;
  ASSERT_EQ(in_a_shell(folder.path(), "train " + tiny + " --out run >out 2>err"), 0);
  ASSERT_EQ(setenv("XDG_STATE_HOME", folder.path().c_str(), 1), 0);
  const char* const term = std::getenv("TERM");
  const std::string term_before = term != nullptr ? term : "";
  ASSERT_EQ(setenv("TERM", "xterm", 1), 0);
  // --ignore-eos: an end-of-document token would end the answer before it can be stopped. Keys are typed only at a
  // prompt: before it the terminal still belongs to the line discipline, which consumes an end of file.
  const auto [code, shown] = in_a_terminal(folder.path(), "chat run --max-tokens 1000000 --ignore-eos", 80,
                                           {{"> ", "Once upon a time\r"},         // an answer without end ...
                                            {"Once upon a time\r\n", "\003", 1},  // ... that is stopped after it began
                                            // The prompt starts a line; "> " elsewhere may be part of an answer.
                                            {"stopped)\r\n> ", "/tokens 3\r"},
                                            {"\n> ", "half a li\003"},         // a discarded line
                                            {"\n> ", "\r"},                    // continues from the last text
                                            {"continues)\r\n> ", "\033[A\r"},  // the previous line: /tokens 3
                                            {"\n> ", "/settings\r"},
                                            {"at most 3 tokens", ""},
                                            {"\n> ", "\004"}});
  unsetenv("XDG_STATE_HOME");
  if (term != nullptr)
    setenv("TERM", term_before.c_str(), 1);
  else
    unsetenv("TERM");
  EXPECT_EQ(code, 0) << shown;
  EXPECT_NE(shown.find("tokens/s, stopped)"), std::string::npos) << shown;
  EXPECT_NE(shown.find("3 tokens, "), std::string::npos) << shown;
  if (std::filesystem::exists(folder / "some/chat-history")) {
    const std::string history = read_file(folder / "some/chat-history");
    EXPECT_NE(history.find("/tokens"), std::string::npos) << history;
    EXPECT_EQ(history.find("half a li"), std::string::npos) << history;
  }
}

TEST(Terminal, AResultThatCannotBeWrittenIsAFailure) {
  TemporaryFolder folder;
  for (const std::string& command : {"info " + tiny, "info --json " + tiny, std::string("data stories"),
                                     std::string("data stories --count 2000"), std::string("--help")}) {
    for (const std::string out : {">/dev/full", ">&-"}) {
      EXPECT_EQ(in_a_shell(folder.path(), command + " " + out + " 2>err"), 1) << command << out;
      EXPECT_EQ(read_file(folder / "err").rfind("some: error[output-unwritable]: ", 0), 0u)
          << read_file(folder / "err");
    }
  }
}

// A closed descriptor must not be reused for a file of the run, and closed output is no reason to stop.
TEST(Terminal, TrainingDoesNotDependOnWhoReadsAlong) {
  TemporaryFolder folder;
  ASSERT_EQ(in_a_shell(folder.path(), "train " + tiny + " --out plain >out 2>err"), 0);
  EXPECT_EQ(in_a_shell(folder.path(), "train " + tiny + " --out full >out 2>/dev/full"), 0);
  EXPECT_EQ(in_a_shell(folder.path(), "train " + tiny + " --out closed <&- >out 2>&-"), 0);
  EXPECT_EQ(in_a_shell(folder.path(), "train " + tiny + " --out silent <&- >&- 2>&-"), 1);
  for (const std::string run : {"full", "closed", "silent"})
    EXPECT_EQ(read_file(folder / (run + "/metrics.jsonl")), read_file(folder / "plain/metrics.jsonl")) << run;
}

}  // namespace
}  // namespace some
