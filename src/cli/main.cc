#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "cli/program.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/instruction_set.h"
#include "core/system_error.h"
#include "core/version.h"

namespace some {
namespace {

// Opens /dev/null for standard descriptors that the caller closed; otherwise the next opened file would take their
// number and receive printed output. Standard output is opened read-only, so that printing to it fails and is reported.
void keep_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) == -1 && errno == EBADF)
      // takes the lowest free descriptor, which is this one
      open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Returns false if a result could not be written, which is a failure whatever the command did.
bool output_written() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  print_line("some: error[{}]: cannot write to standard output: {}", name_of(Code::output_unwritable), last_reason());
  return false;
}

// Returns the command words that led to the error, to point to their help.
std::string command_of(const Command& app) {
  std::string words = "some";
  for (const Command* at = app.chosen(); at != nullptr; at = at->chosen()) words += " " + at->name();
  return words;
}

int wrong_use(const Program& program, const UsageError& wrong) {
  if (wrong.code == Code::argument_unexpected) return fail(unexpected_words(program, wrong.what));
  const std::string name = wrong.what.substr(0, wrong.what.find_first_of(": "));
  return fail(
      Error(Fault::input, wrong.code, fmt::format("{}; see '{} --help'", wrong.what, command_of(program)), {name}));
}

// Reports a filesystem error; most of these are problems with a path that the user can correct.
int file_fault(const std::filesystem::filesystem_error& error) {
  Fault fault = Fault::failure;
  for (const std::errc reason :
       {std::errc::permission_denied, std::errc::filename_too_long, std::errc::too_many_symbolic_link_levels,
        std::errc::not_a_directory, std::errc::no_such_file_or_directory, std::errc::file_exists}) {
    if (error.code() == reason) fault = Fault::input;
  }
  return fail(make_error(
      fault, error.code() == std::errc::no_such_file_or_directory ? Code::file_not_found : Code::system_failed,
      "{}: {}", error.path1().string(), reason_of(error.code().value())));
}

// Rejects several ranks for commands that do not support them: they would write the same files concurrently.
void reject_ranks(const Command& command) {
  if (command.parent() == nullptr) return;
  const RankEnvironment started = rank_environment();
  if (!started.problem.empty()) bad_input(Code::rank_environment, "{}", started.problem);  // before any work is done
  if (started.size == 1 || command.works_on_ranks()) return;
  bad_input(Code::ranks_unsupported, "'some {}' runs in one process, but {} were started; omit mpirun or srun",
            command.path(), started.size);
}

// Ends the program with a message. Uses nothing that could fail again: no memory allocation, no streams.
[[noreturn]] void end_saying(Code code, const char* reason) {
  for (const char* part : {"some: error[", name_of(code).data(), "]: ", reason, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  std::_Exit(1);
}

// Reports an exception that cannot propagate (end of a thread, destructor) like any other, instead of by a signal.
[[noreturn]] void on_failure() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    end_saying(Code::out_of_memory, "out of memory; 'some info RECIPE' shows the memory that a run requires");
  } catch (const Error& error) {
    end_saying(error.code(), error.what());
  } catch (const std::exception& error) {
    end_saying(Code::internal, error.what());
  } catch (...) {
  }
  end_saying(Code::internal, "stopped by an error that could not be printed");
}

}  // namespace
}  // namespace some

int main(int argc, char** argv) {
  using namespace some;
  std::set_terminate(on_failure);
  // A write beyond `ulimit -f` then fails with a reason, like one to a full disk, instead of ending the program there.
  signal(SIGXFSZ, SIG_IGN);
  keep_standard_descriptors();
  errors_as_json = std::any_of(argv, argv + argc, [](const char* word) { return std::strcmp(word, "--json") == 0; });
  escape_terminal_output();
  Program program("some", "some: train, run, inspect and explain self-organizing mixture-of-experts language models",
                  program_version());
  add_commands(program);
  program.check_numbers();
  try {
    instruction_set();  // refuses a SOME_CPU that cannot run here
    // An unknown command name is reported with the nearest name.
    reject_ranks(*find_command(program, {argv + 1, argv + argc}));
    program.run(argc, argv);
  } catch (const UsageError& wrong) {
    return wrong_use(program, wrong);
  } catch (const CollectiveError& failure) {
    return fail(failure, FailureScope::all_ranks);
  } catch (const Error& error) {
    return fail(error);
  } catch (const std::bad_alloc&) {
    return fail({Fault::failure, Code::out_of_memory,
                 "out of memory; 'some info RECIPE' shows the memory that a run requires"});
  } catch (const std::length_error&) {
    return fail({Fault::failure, Code::out_of_memory, "out of memory: an allocation exceeds the address space"});
  } catch (const std::filesystem::filesystem_error& error) {
    return file_fault(error);
  } catch (const std::system_error& error) {  // a thread could not be started
    return fail({Fault::failure, Code::system_failed, reason_of(error.code().value())});
  } catch (const std::exception& error) {
    return fail(make_error(Fault::failure, Code::internal, "internal error: {}; please report it", error.what()));
  }
  if (!output_written()) return 1;
  leave_ranks();
  return exit_code;
}
