// Input and output of the program: results on standard output, messages and progress on standard error.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"

namespace some {

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

}  // namespace some
