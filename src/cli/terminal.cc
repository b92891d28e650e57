#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/units.h"
#include "core/escape.h"

namespace some {

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

void print_json(const nlohmann::json& value) {
  // Invalid UTF-8 (a model may generate half a character) is printed as replacement characters.
  fmt::print("{}\n", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

bool is_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  return terminal;
}

int terminal_columns() {
  winsize size{};
  // Queried at each call because windows are resized.
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::size_t table_columns() { return static_cast<std::size_t>(std::clamp(terminal_columns(), 80, 132)); }

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string wrapped(const std::string& text, std::size_t columns, const std::string& indent) {
  std::string out, line;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && display_width(indent + line) + 1 + display_width(word) > columns) {
      out += indent + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return out + indent + line + "\n";
}

namespace {

void write_to_standard_error(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

bool write_to_standard_output(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

StreamEscape terminal_text;  // may hold back an incomplete character

ssize_t write_escaped(void*, const char* data, std::size_t size) {
  // Returning 0 signals a write error to the stream.
  return write_to_standard_output(terminal_text.add({data, size})) ? static_cast<ssize_t>(size) : 0;
}

}  // namespace

void escape_terminal_output() {
  if (isatty(STDOUT_FILENO) == 0) return;
  cookie_io_functions_t functions{};
  functions.write = write_escaped;
  std::FILE* const escaped_output = fopencookie(nullptr, "w", functions);
  if (escaped_output == nullptr) return;
  std::setvbuf(escaped_output, nullptr, _IOLBF, BUFSIZ);
  stdout = escaped_output;
}

void send_control_sequence(const char* sequence) {
  if (isatty(STDOUT_FILENO) == 0) return;
  std::fflush(stdout);
  write_to_standard_output(sequence);
}

void print_message(const std::string& text) { write_to_standard_error(escaped(text, Lines::kept)); }

void print_message_line(const std::string& text) {
  write_to_standard_error((is_terminal() ? "\r\033[K" : "") + escaped(text) + "\n");
}

Log terminal_log() {
  return Log([](const LogMessage& message) {
    print_line("{}{}", message.code ? fmt::format("warning[{}]: ", name_of(*message.code)) : "", message.text);
  });
}

void redraw(const std::string& what) {
  const auto room = static_cast<std::size_t>(std::max(1, terminal_columns() - 1));
  const std::string text = escaped(what);
  std::size_t end = 0;
  for (std::size_t columns = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (begins && ++columns > room) break;
  }
  write_to_standard_error("\r\033[K" + text.substr(0, end));
}

void PreparationProgress::show(const std::string& what, std::int64_t done, std::int64_t total) {
  const std::string text =
      what + " " + (total > 0 ? fmt::format("{}%", 100 * done / total) : format_count(static_cast<double>(done)));
  if (is_terminal()) return redraw(text);
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::seconds(30)) return;
  last_ = now;
  say("{}\n", text);
}

std::string progress_line(double done, std::vector<ProgressPart> parts, int columns) {
  constexpr int widest = 24, narrowest = 8;
  const auto width = [&] {
    int sum = -1;
    for (const ProgressPart& part : parts) sum += static_cast<int>(part.text.size()) + 2;
    return sum;
  };
  while (parts.size() > 1 && width() + narrowest > columns)
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const ProgressPart& a, const ProgressPart& b) { return a.rank < b.rank; }));
  const int bar = std::clamp(columns - width(), narrowest, widest);
  const int filled = static_cast<int>(bar * done);
  std::string line;
  for (int i = 0; i < bar; ++i) line += i < filled ? "█" : "░";
  for (std::size_t i = 0; i < parts.size(); ++i) line += (i == 0 ? " " : "  ") + parts[i].text;
  return line;
}

}  // namespace some
