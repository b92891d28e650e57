// The whole command line: every command (commands.cc), and lookup of commands by name.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "core/error.h"

namespace some {

void add_commands(Command& app);

// Returns the subcommands listed for users.
std::vector<Command*> visible_commands(const Command& app);
// Returns the deepest command that the leading words name. Throws (bad_input), with the nearest name, if a word in the
// place of a command names none.
Command* find_command(Command& app, const std::vector<std::string>& words);
// Returns the error for unexpected arguments, with the flag that was probably meant.
Error unexpected_words(const Program& program, const std::string& reason);

// Exit code of a command that ended normally but without success (a stopped run: 128 + signal).
extern int exit_code;

}  // namespace some
