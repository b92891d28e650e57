// Runs the program as a user does and captures its output.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "core/error_code.h"
#include "temporary_folder.h"

namespace some {

struct CommandResult {
  int code = 0;  // exit code, or 128 + signal
  std::string out, err;
};

class RunningCommand {
 public:
  // Starts `some ARGS...` in `folder`, with `input` as standard input.
  RunningCommand(const std::string& folder, const std::vector<std::string>& arguments, const std::string& input = "") {
    out_ = scratch_ / "out";
    err_ = scratch_ / "err";
    const std::string in = scratch_.write("in", input);
    pid_ = fork();
    if (pid_ == 0) {
      if (chdir(folder.c_str()) != 0) _exit(120);
      redirect(in, O_RDONLY, 0);
      redirect(out_, O_WRONLY | O_CREAT | O_TRUNC, 1);
      redirect(err_, O_WRONLY | O_CREAT | O_TRUNC, 2);
      std::vector<char*> words;
      std::string program = std::string(SOME_BINARY_DIR) + "/some";
      words.push_back(program.data());
      std::vector<std::string> copy = arguments;
      for (std::string& word : copy) words.push_back(word.data());
      words.push_back(nullptr);
      execv(program.c_str(), words.data());
      _exit(121);
    }
  }
  void signal(int number) const { kill(pid_, number); }
  // Waits until standard error contains `text`; returns false if the program ended without it.
  bool wait_for(const std::string& text) const {
    return wait_until([&] { return read(err_).find(text) != std::string::npos; });
  }
  // Waits for a line on standard output, such as the JSON object; returns false if the program ended without one.
  bool wait_for_output() const {
    return wait_until([&] { return output().find('\n') != std::string::npos; });
  }
  std::string output() const { return read(out_); }  // output so far
  CommandResult finish() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(out_), read(err_)};
  }

 private:
  template <typename Condition>
  bool wait_until(const Condition& condition) const {
    for (int i = 0; i < 3000; ++i) {
      if (condition()) return true;
      siginfo_t info{};
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid != 0) return condition();
      usleep(10000);
    }
    return false;
  }
  static void redirect(const std::string& path, int flags, int descriptor) {
    const int file = open(path.c_str(), flags, 0600);
    dup2(file, descriptor);
    close(file);
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  TemporaryFolder scratch_;
  std::string out_, err_;
  pid_t pid_ = 0;
};

inline CommandResult run_command(const std::string& folder, const std::vector<std::string>& arguments,
                                 const std::string& input = "") {
  return RunningCommand(folder, arguments, input).finish();
}

// True if one line on standard error is an error or a warning with this code, followed by these words (paths, names,
// numbers) in any order.
inline ::testing::AssertionResult says(const CommandResult& result, Code code,
                                       const std::vector<std::string>& words = {}) {
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    const std::string mark = "[" + std::string(name_of(code)) + "]: ";
    const std::size_t at = std::min(line.find("error" + mark), line.find("warning" + mark));
    if (at == std::string::npos) continue;
    const bool all = std::all_of(words.begin(), words.end(),
                                 [&](const std::string& word) { return line.find(word, at) != std::string::npos; });
    if (all) return ::testing::AssertionSuccess();
  }
  std::string wanted(name_of(code));
  for (const std::string& word : words) wanted += " | " + word;
  return ::testing::AssertionFailure() << "wanted " << wanted << "; it said:\n" << result.err;
}

}  // namespace some
