// The help of a command, by its words.
#include <fmt/format.h>

#include "cli/program.h"

namespace some {
namespace {

void set_up_help(Command& command) {
  auto words = std::make_shared<std::vector<std::string>>();
  command.add_option("COMMAND", *words, "such as train, or lab run");
  command.callback([words, &command] { fmt::print("{}", named_command(command.program(), *words)->help()); });
}

}  // namespace

CommandSpec help_command() {
  return {
      .name = "help",
      .group = CommandGroup::find_things,
      .summary = "the help of a command",
      .examples = {{"help train", ""}, {"help lab run", ""}},
      .set_up = set_up_help,
  };
}

}  // namespace some
