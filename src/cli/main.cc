#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/version.h"
#include "cli/commands.h"

namespace some::cli {
int exit_code = 0;

namespace {

// A descriptor that the caller closed would be given to the next file opened, and what is printed would land in that
// file. Standard output is opened for reading only: printing to it fails and is told.
void keep_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) == -1 && errno == EBADF)
      open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free one: this one
  }
}

// A result that could not be written is no result.
bool output_written() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  say_line("some: cannot write to standard output: {}", std::strerror(errno));
  return false;
}

}  // namespace
}  // namespace some::cli

int main(int argc, char** argv) {
  using namespace some;
  cli::keep_standard_descriptors();
  CLI::App app{"some: train, run, inspect and explain self-organizing mixture-of-experts language models"};
  app.name("some");
  app.set_version_flag("--version", program_version());
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  cli::add_train(app);
  cli::add_eval(app);
  cli::add_generate(app);
  cli::add_inspect(app);
  cli::add_trace(app);
  cli::add_guilds(app);
  cli::add_adapt(app);
  cli::add_info(app);
  cli::add_verify(app);
  cli::add_bench(app);
  cli::add_tokenizer(app);
  cli::add_data(app);
  cli::add_lab(app);
  try {
    if (argc > 1 && argv[1][0] != '-') {
      std::string names;
      bool known = false;
      for (const CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) {
        names += (names.empty() ? "" : ", ") + command->get_name();
        known = known || command->get_name() == argv[1];
      }
      if (!known) bad_input("there is no command '{}'; there are: {}", argv[1], names);
    }
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help ends well; every wrong use of the command line is code 2.
    if (app.exit(error) != 0) return 2;
    return cli::output_written() ? 0 : 1;
  } catch (const Error& error) {
    cli::say_line("some: {}", error.what());
    return error.fault() == Fault::input ? 2 : 1;
  } catch (const std::bad_alloc&) {
    cli::say_line("some: out of memory; 'some info RECIPE' says how much a run needs");
    return 1;
  } catch (const std::exception& error) {
    cli::say_line("some: {}", error.what());
    return 1;
  }
  if (!cli::output_written()) return 1;
  return cli::exit_code;
}
