// The whole command line: every command (commands.cc), and the lookup of commands by their words.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "core/error.h"

namespace some {

void add_commands(Command& app);

// Subcommands that are shown to users.
std::vector<Command*> visible_commands(const Command& app);
// The command that the first words name, as deep as they name one. A word that should name a command and does not is
// bad input, with the nearest one.
Command* named_command(Command& app, const std::vector<std::string>& words);
// What is wrong with arguments that nothing takes, with the flag that was probably meant.
Error unexpected_words(const Program& program, const std::string& reason);

// The exit code of a command that ended in order but with another result than success (a stopped run: 128 + signal).
extern int exit_code;

}  // namespace some
