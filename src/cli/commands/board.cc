// `some board`: serves the board until a signal ends it.
#include "board/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>

#include "cli/board.h"
#include "cli/model_flags.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files/folders.h"
#include "runtime/machine.h"

extern char** environ;

namespace some {
namespace {

struct BoardFlags {
  std::vector<std::string> folders;
  std::string host = "127.0.0.1", device = "auto";
  std::optional<int> port;
  int threads = 0;
  bool read_only = false, open = false, json = false;
};

void run(const BoardFlags& options) {
  BoardSettings settings;
  settings.watch.folders = options.folders.empty() ? std::vector<std::string>{"runs"} : options.folders;
  if (options.folders.empty() && !folder_exists("runs"))
    bad_input(Code::folder_not_found,
              "folder runs not found; pass the folder of your runs (some board FOLDER), or train one first");
  settings.server.host = options.host;
  settings.server.port = options.port.value_or(default_port);
  settings.read_only = options.read_only;
  settings.device = device_choice(options.device);
  settings.threads = options.threads;
  watch_signals();
  const auto board = open_board(settings, !options.port);
  if (options.json)
    print_json({{"address", board->address()}, {"port", board->port()}});
  else
    fmt::print("{}\n", board->address());
  std::fflush(stdout);
  print_line("the board is open; Ctrl-C ends it");
  if (options.open) show_in_browser(board->address());
  while (received_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace

std::unique_ptr<Board> open_board(BoardSettings settings, bool any_port) {
  for (int more = 0;; ++more) {
    try {
      return std::make_unique<Board>(settings, terminal_log());
    } catch (const AddressTaken&) {
      if (!any_port || more == 20) throw;
      settings.server.port += 1;
    }
  }
}

void show_in_browser(const std::string& address) {
  std::string program = "xdg-open", words = address;
  char* arguments[] = {program.data(), words.data(), nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&quiet, descriptor, "/dev/null", O_RDWR, 0);
  pid_t child = 0;
  if (posix_spawnp(&child, arguments[0], &quiet, nullptr, arguments, environ) != 0)
    print_line("no browser could be opened (xdg-open not found); open {} yourself", address);
  posix_spawn_file_actions_destroy(&quiet);
}

namespace {

void set_up_board(Command& command) {
  auto options = std::make_shared<BoardFlags>();
  command
      .add_option("FOLDERS", options->folders,
                  "runs, by name (in runs) or folder, or folders that contain them (default: runs)")
      ->run_folder();
  command.add_option("--port", options->port, "port; 0 = any (default: the first free port from 6060)")
      ->range(0, 65535);
  command
      .add_option("--host", options->host,
                  "address to listen on; if other machines can reach it, the printed token is required")
      ->capture_default_str();
  command.add_flag("--read-only", options->read_only, "show runs only: no prompts, experiments or changes");
  command.add_flag("--open", options->open, "open the board in a browser");
  command.add_option("--device", options->device, "device for prompts: auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  command.add_option("--threads", options->threads, "CPU threads for prompts; 0 = all available")
      ->range(0, max_threads)
      ->capture_default_str();
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec board_command() {
  return {
      .name = "board",
      .group = CommandGroup::look_inside,
      .summary = "watch runs in a browser: live curves, expert load, and prompts",
      .examples = {{"board", "all runs in ./runs; stop with Ctrl-C"},
                   {"board runs/tiny runs/on --read-only", "only these runs, without prompts"}},
      .json = "the address of the page",
      .set_up = set_up_board,
  };
}

}  // namespace some
