// Input and output of the program: results go to standard output, messages and progress to standard error.
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

std::string standard_input();  // reads to the end
// Prints one JSON object to standard output and nothing else.
void print_json(const nlohmann::json& value);
bool is_terminal();  // true if standard error is a terminal, so that progress bars can be drawn
int terminal_columns();
std::size_t table_columns();  // layout width of tables and prose: the terminal's width, clamped to 80..132
// Returns the width in columns: a UTF-8 character takes one column.
std::size_t display_width(const std::string& text);
// Breaks text between words into lines of at most `columns`, each starting with `indent` and ending with a newline.
std::string wrapped(const std::string& text, std::size_t columns, const std::string& indent = "");

// Escapes control characters (in titles, names, documents) from now on if standard output is a terminal; files and
// pipes receive every byte unchanged. The program's own control sequences go through send_control_sequence.
void escape_terminal_output();
void send_control_sequence(const char* sequence);

// Writes to standard error with control characters escaped. Failed writes (a closed terminal, a full disk) are ignored:
// a run of several days must not end because its log cannot be written.
void print_message(const std::string& text);
// Does the same, replacing the line currently being redrawn, if any; `text` becomes one line.
void print_message_line(const std::string& text);
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  print_message(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void print_line(fmt::format_string<Args...> format, Args&&... args) {
  print_message_line(fmt::format(format, std::forward<Args>(args)...));
}
Log terminal_log();  // prints the library's messages as lines on standard error
// Redraws the progress line, cut to the terminal's width because a wrapped line cannot be redrawn.
void redraw(const std::string& text);
// Progress of preparation before training (reading text): redrawn on a terminal; otherwise one line every 30 seconds,
// so that the log of a long preparation shows it is alive.
class PreparationProgress {
 public:
  void show(const std::string& what, std::int64_t done, std::int64_t total);

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};
// Formats the progress of training in at most `columns` columns; the least important parts are dropped first.
struct ProgressPart {
  std::string text;
  int rank = 0;  // parts with the highest rank are dropped first
};
std::string progress_line(double done, std::vector<ProgressPart> parts, int columns);

}  // namespace some
