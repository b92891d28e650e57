// The whole command line, and what is made from that one definition: help, suggestions, completion in shells, the
// manual page.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace some {

// Adds every command, with its examples.
void add_commands(Command& app);

// Subcommands that are shown to users.
std::vector<Command*> visible_commands(const Command& app);
// The command that the first words name, as deep as they name one. A word that should name a command and does not is
// bad input, with the nearest one.
Command* named_command(Command& app, const std::vector<std::string>& words);
// What is wrong with arguments that nothing takes, with the flag that was probably meant.
std::string unexpected_words(const Program& program);

struct Example {
  std::string line;     // after "some "
  std::string comment;  // may be empty
};
// Of a command, named by its path ("lab run").
const std::vector<Example>& examples_of(const std::string& path);

// "lab run"; empty for the program itself.
std::string command_path(const Command& command);

}  // namespace some
