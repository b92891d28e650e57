#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <thread>

#include "cli/commands.h"
#include "core/escape.h"
#include "runs/run.h"

namespace some {
namespace {
std::atomic<int> first_signal{0};
std::atomic<bool> saving{false};

// `timeout` and schedulers signal a program and then its whole group: one wish that comes twice within a moment.
constexpr auto same_wish = std::chrono::seconds(1);
}  // namespace

void watch_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGINT);
  sigaddset(&wanted, SIGTERM);
  struct sigaction lost_terminal {};
  if (sigaction(SIGHUP, nullptr, &lost_terminal) == 0 && lost_terminal.sa_handler != SIG_IGN)
    sigaddset(&wanted, SIGHUP);                  // ignored: nohup wants the run to go on
  pthread_sigmask(SIG_BLOCK, &wanted, nullptr);  // threads made from here on inherit it
  std::thread([wanted] {
    std::chrono::steady_clock::time_point first;
    for (int number = 0; sigwait(&wanted, &number) == 0;) {
      const auto now = std::chrono::steady_clock::now();
      if (first_signal.load() == 0) {
        first = now;
        first_signal = number;
      } else if (now - first >= same_wish) {
        while (saving) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::_Exit(128 + number);
      }
    }
  }).detach();
}

void set_saving(bool now) { saving = now; }

int received_signal() { return first_signal.load(); }

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

void print_json(const nlohmann::json& value) {
  // Text that is not UTF-8 (a model may generate half a character) is shown with replacement marks.
  fmt::print("{}\n", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

bool is_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  return terminal;
}

int terminal_columns() {
  winsize size{};
  // Asked each time: windows change their size.
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

StreamEscape terminal_text;  // may hold back the beginning of a character

ssize_t write_escaped(void*, const char* data, std::size_t size) {
  // 0 is how a stream is told that writing failed.
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

void act_on_terminal(const char* sequence) {
  if (isatty(STDOUT_FILENO) == 0) return;
  std::fflush(stdout);
  write_to_standard_output(sequence);
}

void say_text(const std::string& text) { write_to_standard_error(escaped(text, Lines::kept)); }

void say_one_line(const std::string& text) {
  write_to_standard_error((is_terminal() ? "\r\033[K" : "") + escaped(text) + "\n");
}

Log terminal_log() {
  return Log([](LogLevel level, const std::string& message) {
    say_line("{}{}", level == LogLevel::warning ? "warning: " : "", message);
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

void Preparation::show(const std::string& what, std::int64_t done, std::int64_t total) {
  const std::string text =
      what + " " + (total > 0 ? fmt::format("{}%", 100 * done / total) : human_count(static_cast<double>(done)));
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

void add_model_flags(Command& command, ModelFlags& flags) {
  command.add_option("RUN", flags.run, "run folder")->required();
  command.add_option("--checkpoint", flags.checkpoint, "latest, best, or a step number")->capture_default_str();
  command.add_option("--device", flags.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--precision", flags.precision, "fp32, bf16 (GPU) or f64 (CPU); default: as trained");
  command.add_option("--threads", flags.threads, "CPU threads; 0: as many as it may use")
      ->range(0, max_threads)
      ->capture_default_str();
}

OpenedRun open_run(const ModelFlags& flags, const Group& group) {
  const Log log = group.root() ? terminal_log() : Log();
  return open_run(flags.run, {flags.checkpoint, device_choice(flags.device), said_precision(flags.precision),
                              make_host(flags.threads, log, group)});
}

std::string human_count(double value) {
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f} k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::string human_bytes(double value) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, units[unit]);
}

std::string human_seconds(double value) {
  if (!std::isfinite(value) || value < 0) return "?";
  const auto total = static_cast<long long>(value + 0.5);
  if (total < 60) return fmt::format("{}s", total);
  if (total < 3600) return fmt::format("{}m {:02}s", total / 60, total % 60);
  return fmt::format("{}h {:02}m", total / 3600, total % 3600 / 60);
}

}  // namespace some
