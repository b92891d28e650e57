// The command line: one file a subcommand. Only here is anything printed or the process ended.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "comm/group.h"
#include "core/log.h"

namespace some {
struct OpenedRun;  // runs/run.h
}

namespace some {

// Each adds its subcommand to the program; its callback does the work.
void add_train(Command& app);
void add_eval(Command& app);
void add_generate(Command& app);
void add_chat(Command& app);
void add_inspect(Command& app);
void add_trace(Command& app);
void add_guilds(Command& app);
void add_board(Command& app);
void add_adapt(Command& app);
void add_read(Command& app);
void add_memory(Command& app);
void add_export(Command& app);
void add_import(Command& app);
void add_library(Command& app);
void add_info(Command& app);
void add_verify(Command& app);
void add_bench(Command& app);
void add_tokenizer(Command& app);
void add_data(Command& app);
void add_lab(Command& app);
void add_keys(Command& app);
void add_runs(Command& app);
void add_compare(Command& app);
void add_help(Command& app);
void add_completion(Command& app);  // and the manual page

// The exit code of a command that ended in order but with another result than success (a stopped run: 128 + signal).
extern int exit_code;

// The ranks that mpirun or srun started (comm/group.h), from the first call on; a group of one otherwise. Only rank 0
// prints results. A command that knows nothing of ranks is refused where there are several (main.cc).
const Group& join_ranks();
void leave_ranks();                                          // at the end of the program; waits for the others
bool works_on_ranks(const std::vector<std::string>& words);  // of the command line
// The last line of a program that failed; where there are several ranks it ends them all. Returns the exit code.
enum class Whose { this_rank, all_ranks };  // what went wrong
int fail(int code, const std::string& line, Whose whose = Whose::this_rank);

// SIGINT, SIGTERM and SIGHUP (a lost terminal; not under nohup) are taken by a thread of their own, from this call on
// (before other threads begin). No handler ever interrupts a computing thread: generated matrix kernels do not keep to
// the rules a handler's stack frame relies on. A second signal, at least a second after the first, ends the program at
// once, or when a checkpoint that is being written is done.
void watch_signals();
int received_signal();      // 0: none
void set_saving(bool now);  // a checkpoint is being written

std::string standard_input();  // to its end
// One JSON object on standard output, nothing else.
void print_json(const nlohmann::json& value);
bool is_terminal();  // standard error is a terminal: bars may be drawn
int terminal_columns();
std::size_t table_columns();  // what tables and prose are laid out for: the terminal's, within bounds
std::size_t display_width(
    const std::string& text);  // its characters: what UTF-8 writes in several bytes takes one column
// Broken between words into lines of at most `columns`, each ending with a new line and beginning with `indent`.
std::string wrapped(const std::string& text, std::size_t columns, const std::string& indent = "");

// From here on, where standard output is a terminal, whatever would act on it (control characters in titles, names,
// stories) is written out; files and pipes get every byte as it is. What the program itself wants the terminal to obey
// goes through act_on_terminal.
void escape_terminal_output();
void act_on_terminal(const char* sequence);

// To standard error, with everything written out that would act on a terminal. What cannot be written there (a closed
// terminal, a full disk) is dropped: a run of days must not end because nobody reads along.
void say_text(const std::string& text);
// The same in place of a line that is being redrawn, where there is one; `text` becomes one line.
void say_one_line(const std::string& text);
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_text(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void say_line(fmt::format_string<Args...> format, Args&&... args) {
  say_one_line(fmt::format(format, std::forward<Args>(args)...));
}
Log terminal_log();  // where the library's messages go: lines on standard error
// Redraws the line that shows progress; cut to the terminal's width, since a wrapped line cannot be redrawn.
void redraw(const std::string& text);
// How far something is that comes before training (reading text): redrawn on a terminal; elsewhere a line every half
// minute, so that a log of a long one shows that it is alive.
class Preparation {
 public:
  void show(const std::string& what, std::int64_t done, std::int64_t total);

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};
// The progress of training in at most `columns` columns: what matters least is left out first.
struct ProgressPart {
  std::string text;
  int rank = 0;  // the highest goes first
};
std::string progress_line(double done, std::vector<ProgressPart> parts, int columns);

constexpr int max_threads = 4096;

struct ModelFlags {  // shared by the commands that open a run
  std::string run, checkpoint = "latest", device = "auto", precision;
  int threads = 0;
};
void add_model_flags(Command& command, ModelFlags& flags);
OpenedRun open_run(const ModelFlags& flags, const Group& group = {});

std::string human_count(double value);    // 701.50 M
std::string human_bytes(double value);    // 2.6 GiB
std::string human_seconds(double value);  // 3m 05s

}  // namespace some
