// The whole command line as CLI11 holds it, and what is made from that one definition: help, suggestions, completion in
// shells, the manual page.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace some::cli {

// Adds every command, with its examples.
void add_commands(CLI::App& app);

// Subcommands that are shown to users.
std::vector<CLI::App*> visible_commands(const CLI::App& app);
// The command that the first words name, as deep as they name one. A word that should name a command and does not is
// bad input, with the nearest one.
CLI::App* named_command(CLI::App& app, const std::vector<std::string>& words);
// What is wrong with arguments that nothing takes, with the flag that was probably meant.
std::string unexpected_words(const CLI::App& app);

struct Example {
  std::string line;     // after "some "
  std::string comment;  // may be empty
};
// Of a command, named by its path ("lab run").
const std::vector<Example>& examples_of(const std::string& path);

// "lab run"; empty for the program itself.
std::string command_path(const CLI::App& command);

}  // namespace some::cli
