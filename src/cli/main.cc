#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"

namespace some::cli {
int exit_code = 0;
}

int main(int argc, char** argv) {
  using namespace some;
  CLI::App app{"some: train, run, inspect and explain self-organizing mixture-of-experts language models"};
  app.name("some");
  app.set_version_flag("--version", "some " SOME_VERSION);
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
  set_log_sink([](LogLevel level, const std::string& message) {
    fmt::print(stderr, "{}{}{}\n", cli::is_terminal() ? "\r\033[K" : "", level == LogLevel::warning ? "warning: " : "",
               message);
  });
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
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    fmt::print(stderr, "{}some: {}\n", cli::is_terminal() ? "\r\033[K" : "", error.what());
    return error.fault() == Fault::input ? 2 : 1;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "some: out of memory; 'some info RECIPE' says how much a run needs\n");
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "some: {}\n", error.what());
    return 1;
  }
  return cli::exit_code;
}
