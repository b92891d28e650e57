// A command: what is known of it (CommandSpec), its options, and what it does. Made with CLI11, whose headers take
// seconds to compile, so only command.cc includes them. The names of the functions are CLI11's own.
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

// The headings of the program's help, in command.cc. Hidden commands are not shown to people.
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

// Everything that is known of a command before it runs. Help, examples, completion, the manual page and the refusal of
// ranks are derived from it.
struct CommandSpec {
  std::string name;
  CommandGroup group = CommandGroup::hidden;  // of a command of the program, not of a subcommand
  std::string summary = {};
  std::vector<Example> examples = {};
  bool works_on_ranks = false;                 // it and its subcommands, under mpirun or srun
  std::string json = {};                       // what --json prints ("the report"); empty: there is no --json
  void (*set_up)(Command& command) = nullptr;  // adds options and callback; null if it only has subcommands
  std::vector<CommandSpec> subcommands = {};
};

// A flag, or a place for words. What sets one up returns it, so that calls can follow one another.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* required();
  Option* range(std::int64_t least, std::int64_t most);
  Option* not_negative();
  Option* capture_default_str();           // help shows the value it has now
  Option* allow_extra_args(bool several);  // false: one value each time it is given
  Option* delimiter(char between);         // of several values in one word
  Option* excludes(const Option* other);   // the two contradict each other: both at once are refused

  std::string name() const;  // without dashes: the first long one, or that of a place
  std::vector<std::string> long_names() const;
  std::string all_names() const;  // as help shows them: "-o,--out"
  std::string description() const;
  std::string default_text() const;
  bool is_place() const;
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

  void add(const CommandSpec& spec);  // a command of this one, with its options and its own subcommands
  // T: a text, a number (int, std::int64_t, std::uint64_t, double), one that may be left out (std::optional) or several
  // (std::vector); the list is at the end of command.cc.
  template <typename T>
  Option* add_option(const std::string& names, T& value, const std::string& description = "");
  Option* add_flag(const std::string& names, bool& value, const std::string& description);
  Option* add_flag_callback(const std::string& names, std::function<void()> action, const std::string& description);
  void add_json(bool& value);  // --json, as the spec describes it
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
  Command* chosen() const;  // the one of them that the words name; null before they are read
  std::vector<Option> options() const;
  std::optional<Option> find_option(const std::string& name) const;  // with its dashes
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

// Words that make no sense to the command line.
struct WrongUse {
  std::string what;
  Code code = Code::option_invalid;
};

class Program : public Command {
 public:
  Program(const std::string& name, const std::string& description, const std::string& version);
  ~Program() override;

  // Every option that takes a number refuses what is none, is negative where it cannot be, or does not fit 64 bits:
  // CLI11 takes -1 for the largest number, cuts off what is too large and reads 010 as eight.
  void check_numbers();
  // Does what the words ask for; help and version are printed. Throws WrongUse, or what the command throws.
  void run(int argc, char** argv);
  std::vector<std::string> unexpected_words() const;

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace some
