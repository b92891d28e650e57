#include "cli/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "recipe/schema.h"

namespace some {

int exit_code = 0;

std::vector<Command*> visible_commands(const Command& app) {
  std::vector<Command*> out;
  for (Command* command : app.subcommands()) {
    if (!command->is_hidden()) out.push_back(command);
  }
  return out;
}

Command* named_command(Command& app, const std::vector<std::string>& words) {
  Command* at = &app;
  for (const std::string& word : words) {
    const auto all = at->subcommands();
    if (all.empty() || word.empty() || word[0] == '-') break;
    const auto found = std::find_if(all.begin(), all.end(), [&](Command* one) { return one->name() == word; });
    if (found == all.end()) {
      std::vector<std::string> names;
      for (const Command* one : visible_commands(*at)) names.push_back(one->name());
      const std::string meant = misspelled_name(word, names), path = at->path();
      bad_input("there is no command '{}{}{}'; {}", path, path.empty() ? "" : " ", word,
                meant.empty() ? fmt::format("there are: {}", fmt::join(names, ", "))
                              : fmt::format("did you mean '{}{}{}'?", path, path.empty() ? "" : " ", meant));
    }
    at = *found;
  }
  return at;
}

std::string unexpected_words(const Program& program) {
  const Command* command = &program;
  while (command->chosen() != nullptr) command = command->chosen();
  const std::vector<std::string> words = program.unexpected_words();
  if (words.empty()) return "";
  const std::string path = command->path();
  const std::string see = fmt::format("'some {}{}--help' shows what there is", path, path.empty() ? "" : " ");
  std::vector<std::string> flags;
  for (const Option& option : command->options()) {
    for (const std::string& name : option.long_names()) flags.push_back("--" + name);
  }
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const std::string meant = misspelled_name(word.substr(0, word.find('=')), flags);
    return fmt::format("there is no flag {}{}; {}", word.substr(0, word.find('=')),
                       path.empty() ? "" : " for '" + path + "'", meant.empty() ? see : "did you mean " + meant + "?");
  }
  return fmt::format("'{}' was not expected; {}", fmt::join(words, " "), see);
}

}  // namespace some
