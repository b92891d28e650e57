// A command: its specification (CommandSpec), its options and its callback. Implemented with CLI11, whose headers take
// seconds to compile, so only command.cc includes them. The names of the functions follow CLI11.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error_code.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace some {

class Command;

struct Example {
  std::string line;     // after "some "
  std::string comment;  // may be empty
};

// Headings of the program's help (texts in command.cc). Hidden commands are not listed.
enum class CommandGroup : std::uint8_t {
  train_and_use,
  other_programs,
  look_inside,
  find_things,
  experiments,
  text,
  shells,
  hidden
};

// Everything known about a command before it runs. Help, examples, completion, the manual page and the check that
// rejects multiple ranks are derived from it.
struct CommandSpec {
  std::string name;
  CommandGroup group = CommandGroup::hidden;  // for top-level commands only, not for subcommands
  std::string summary = {};
  std::vector<Example> examples = {};
  bool works_on_ranks = false;                 // true if the command and its subcommands run under mpirun or srun
  std::string json = {};                       // what --json prints ("the report"); empty: no --json option
  void (*set_up)(Command& command) = nullptr;  // adds options and callback; null if the command only has subcommands
  std::vector<CommandSpec> subcommands = {};
};

// A flag or a positional argument. Setters return the option, so that calls can be chained.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* required();
  Option* range(std::int64_t least, std::int64_t most);
  Option* not_negative();
  Option* capture_default_str();           // help shows the current value as the default
  Option* allow_extra_args(bool several);  // false: one value per occurrence of the flag
  Option* delimiter(char between);         // separates several values within one argument
  Option* run_folder();                    // names a run: a folder, or its name in runs/ (find_run_folder)
  Option* memory_file();                   // names a memory: a file, or a run that has one (find_memory_file)
  Option* excludes(const Option* other);   // mutually exclusive: passing both is an error

  std::string name() const;  // without dashes: the first long name, or the name of a positional argument
  std::vector<std::string> long_names() const;
  std::string all_names() const;  // as shown in help: "-o,--out"
  std::string description() const;
  std::string default_text() const;
  bool is_positional() const;
  bool is_required() const;
  bool is_hidden() const;
  bool takes_value() const;
  bool takes_several() const;

 private:
  CLI::Option* option_;
};

class Command {
 public:
  Command(CLI::App* app, Command* parent, CommandSpec spec);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command();

  void add(const CommandSpec& spec);  // adds a subcommand with its options and its own subcommands
  // T is a string, a number (int, std::int64_t, std::uint64_t, double), a std::optional or a std::vector of these; the
  // explicit instantiations are at the end of command.cc.
  template <typename T>
  Option* add_option(const std::string& names, T& value, const std::string& description = "");
  Option* add_flag(const std::string& names, bool& value, const std::string& description);
  Option* add_flag_callback(const std::string& names, std::function<void()> action, const std::string& description);
  void add_json(bool& value);  // adds --json with the description in the spec
  void callback(std::function<void()> action);

  const CommandSpec& spec() const { return spec_; }
  std::string name() const { return spec_.name; }
  std::string path() const;  // "lab run"; empty for the program itself
  std::string description() const { return spec_.summary; }
  bool is_hidden() const { return parent_->parent_ == nullptr && spec_.group == CommandGroup::hidden; }
  bool works_on_ranks() const;
  Command* parent() const { return parent_; }
  Command& program() { return parent_ == nullptr ? *this : parent_->program(); }
  std::vector<Command*> subcommands() const;
  Command* chosen() const;  // the subcommand named on the command line; null before parsing
  std::vector<Option> options() const;
  std::optional<Option> find_option(const std::string& name) const;  // `name` includes its dashes
  std::string help() const;

 protected:
  CLI::App* app_;

 private:
  Option* keep(CLI::Option* option);

  Command* parent_;
  CommandSpec spec_;
  std::vector<std::unique_ptr<Command>> subcommands_;
  std::vector<std::unique_ptr<Option>> options_;
};

// A command line that cannot be parsed.
struct UsageError {
  std::string what;
  Code code = Code::option_invalid;
};

class Program : public Command {
 public:
  Program(const std::string& name, const std::string& description, const std::string& version);
  ~Program() override;

  // Makes every numeric option reject non-numbers, negative values where none are allowed, and values that do not fit
  // 64 bits. CLI11 turns -1 into the largest unsigned number, truncates values that are too large and reads 010 as
  // octal 8.
  void check_numbers();
  // Parses the arguments and runs the command, or prints help or version. Throws UsageError or the command's
  // exceptions.
  void run(int argc, char** argv);
  std::vector<std::string> unexpected_words() const;

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace some
