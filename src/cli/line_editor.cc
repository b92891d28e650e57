#include "cli/line_editor.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>

namespace some {
namespace {

namespace fs = std::filesystem;

bool at_terminal() { return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0; }

bool held = false;
sigjmp_buf at_prompt;
volatile sig_atomic_t may_jump = 0;

void leave_prompt(int) {
  if (may_jump == 0) return;
  may_jump = 0;
  siglongjmp(at_prompt, 1);
}

sigset_t interrupt_only() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

// Reads a line with libedit. A signal leaves the library's read by siglongjmp, as in other programs with a prompt; no
// object with a destructor may live in this function. Only this thread receives the signal, and it does not compute.
char* edited_line(char* (*edit)(const char*), void (*prepare)(int), const char* prompt, bool* given_up) {
  const sigset_t set = interrupt_only();
  if (sigsetjmp(at_prompt, 1) != 0) {
    *given_up = true;
    return nullptr;
  }
  struct sigaction jump {};
  jump.sa_handler = leave_prompt;
  sigaction(SIGINT, &jump, nullptr);
  may_jump = 1;
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  // The library shows its prompt before it takes over the terminal: a key typed in between would be lost.
  if (prepare != nullptr) prepare(1);
  char* const line = edit(prompt);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  may_jump = 0;
  return line;
}

// Fallback without the library: reads the line as the terminal's own editing delivers it.
char* plain_line(const char* prompt) {
  std::fputs(prompt, stdout);
  std::fflush(stdout);
  char* line = nullptr;
  std::size_t room = 0;
  const ssize_t length = getline(&line, &room, stdin);
  if (length < 0) {
    std::free(line);
    return nullptr;
  }
  if (length > 0 && line[length - 1] == '\n') line[length - 1] = '\0';
  return line;
}

// Reads the history of earlier sessions. Returns false on failure, so that the file is not overwritten. Only regular
// files of at most 1 MiB are read: a pipe would block and an endless file would never finish.
bool read_earlier(const std::string& path, int (*read_history)(const char*)) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return true;
  if (!fs::is_regular_file(status)) return false;
  const std::uintmax_t size = fs::file_size(path, error), most = 1u << 20;
  if (error || size > most) return false;
  return size == 0 || read_history(path.c_str()) == 0;
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

LineEditor::LineEditor(std::string history) : history_(std::move(history)), interactive_(at_terminal()) {
  if (!interactive_) return;
  edit_ = plain_line;
  const char* const terminal = std::getenv("TERM");
  if (terminal == nullptr || std::string(terminal) == "dumb") return;
  void* library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libedit.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  std::setlocale(LC_CTYPE, "");  // for multibyte characters
  char* (*edit)(const char*) = nullptr;
  find(library, "readline", edit);
  find(library, "add_history", add_history_);
  find(library, "write_history", write_history_);
  int (*stifle)(int) = nullptr;
  int (*read_history)(const char*) = nullptr;
  void (*use)() = nullptr;
  find(library, "stifle_history", stifle);
  find(library, "read_history", read_history);
  find(library, "using_history", use);
  if (edit == nullptr || add_history_ == nullptr || write_history_ == nullptr || stifle == nullptr ||
      read_history == nullptr || use == nullptr) {
    add_history_ = nullptr;
    return;
  }
  edit_ = edit;
  find(library, "rl_prep_terminal", prepare_);
  // The editor's control sequences must reach the terminal; the program's own standard output is escaped.
  if (auto* const stream = static_cast<std::FILE**>(dlsym(library, "rl_outstream")))
    *stream = fdopen(dup(STDOUT_FILENO), "w");
  use();
  stifle(1000);
  if (!history_.empty() && !read_earlier(history_, read_history)) history_.clear();
}

LineEditor::ReadResult LineEditor::read(const std::string& prompt, std::string& line) {
  line.clear();
  if (!interactive_) return std::getline(std::cin, line) ? ReadResult::line : ReadResult::end;
  bool given_up = false;
  const std::unique_ptr<char, decltype(&std::free)> typed(edited_line(edit_, prepare_, prompt.c_str(), &given_up),
                                                          std::free);
  if (given_up) {
    std::fputs("\n", stdout);
    return ReadResult::interrupted;
  }
  if (!typed) return ReadResult::end;
  line = typed.get();
  if (add_history_ != nullptr && line.find_first_not_of(" \t") != std::string::npos) {
    add_history_(line.c_str());
    if (!history_.empty()) write_history_(history_.c_str());
  }
  return ReadResult::line;
}

std::string history_file(const std::string& name) {
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  fs::path folder;
  if (state != nullptr && *state != '\0')
    folder = state;
  else if (home != nullptr && *home != '\0')
    folder = fs::path(home) / ".local/state";
  else
    return "";
  std::error_code error;
  fs::create_directories(folder / "some", error);
  return error ? "" : (folder / "some" / name).string();
}

void block_interrupts() {
  if (!at_terminal()) return;
  const sigset_t set = interrupt_only();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  held = true;
}

bool interrupted() {
  if (!held) return false;
  const sigset_t set = interrupt_only();
  const timespec together{0, 0};
  return sigtimedwait(&set, nullptr, &together) == SIGINT;
}

}  // namespace some
