// `some help`: shows the help of a command given by name.
#include <fmt/format.h>

#include "cli/program.h"

namespace some {
namespace {

// Lists every error code by topic; scripts/docs turns this list into a page.
std::string help_of_errors() {
  std::size_t width = 0;
  for (const CodeMeaning& one : error_codes()) width = std::max(width, one.name.size());
  std::string text =
      "A failing command ends with 'some: error[CODE]: message', a warning is 'warning[CODE]: message'.\n";
  std::string_view topic;
  for (const CodeMeaning& one : error_codes()) {
    if (one.topic != topic) text += fmt::format("\n{}\n", topic = one.topic);
    text += fmt::format("  {:<{}}  {}\n", one.name, width, one.meaning);
  }
  return text;
}

void set_up_help(Command& command) {
  auto words = std::make_shared<std::vector<std::string>>();
  command.add_option("COMMAND", *words, "such as train, or lab run");
  command.callback([words, &command] {
    const bool errors = *words == std::vector<std::string>{"errors"};
    fmt::print("{}", errors ? help_of_errors() : find_command(command.program(), *words)->help());
  });
}

}  // namespace

CommandSpec help_command() {
  return {
      .name = "help",
      .group = CommandGroup::find_things,
      .summary = "print the help of a command",
      .examples = {{"help train", ""}, {"help lab run", ""}, {"help errors", "the codes of errors"}},
      .set_up = set_up_help,
  };
}

}  // namespace some
