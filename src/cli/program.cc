#include "cli/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "recipe/common_names.h"
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

Command* find_command(Command& app, const std::vector<std::string>& words) {
  Command* at = &app;
  for (const std::string& word : words) {
    const auto all = at->subcommands();
    if (all.empty() || word.empty() || word[0] == '-') break;
    const auto found = std::find_if(all.begin(), all.end(), [&](Command* one) { return one->name() == word; });
    if (found == all.end()) {
      std::vector<std::string> names;
      for (const Command* one : visible_commands(*at)) names.push_back(one->name());
      const std::string meant = misspelled_name(word, names), path = at->path();
      bad_input(Code::command_unknown, "unknown command '{}{}{}'; {}", path, path.empty() ? "" : " ", word,
                meant.empty() ? fmt::format("commands: {}", fmt::join(names, ", "))
                              : fmt::format("did you mean '{}{}{}'?", path, path.empty() ? "" : " ", meant));
    }
    at = *found;
  }
  return at;
}

// Returns the option that begins with the word, such as --temperature for --temp, if only one does.
static std::string completed(const std::string& word, const std::vector<std::string>& flags) {
  std::string found;
  if (word.size() < 4) return found;
  for (const std::string& flag : flags) {
    if (!flag.starts_with(word)) continue;
    if (!found.empty()) return "";
    found = flag;
  }
  return found;
}

Error unexpected_words(const Program& program, const std::string& reason) {
  const Command* command = &program;
  while (command->chosen() != nullptr) command = command->chosen();
  const std::vector<std::string> words = program.unexpected_words();
  const auto unexpected = [](const std::string& message, std::vector<std::string> values) {
    return Error(Fault::input, Code::argument_unexpected, message, std::move(values));
  };
  if (words.empty()) return unexpected(reason, {""});
  const std::string path = command->path();
  const std::string see = fmt::format("see 'some {}{}--help'", path, path.empty() ? "" : " ");
  std::vector<std::string> flags;
  for (const Option& option : command->options()) {
    for (const std::string& name : option.long_names()) flags.push_back("--" + name);
  }
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const std::string flag = word.substr(0, word.find('='));
    std::string meant = completed(flag, flags);
    if (meant.empty()) meant = misspelled_name(flag, flags);
    const auto has = [&](const char* name) { return std::find(flags.begin(), flags.end(), name) != flags.end(); };
    if ((flag == "--gpu" || flag == "--cuda") && has("--device")) meant = "--device cuda";
    // Users pass settings as flags, which other programs accept; here they are KEY=VALUE.
    if (const std::string setting = setting_commonly_called(flag); meant.empty() && !setting.empty())
      meant = setting + "=VALUE";
    return unexpected(fmt::format("unknown option {}{}; {}", flag, path.empty() ? "" : " for '" + path + "'",
                                  meant.empty() ? see : "did you mean " + meant + "?"),
                      meant.empty() ? std::vector{flag} : std::vector{flag, meant});
  }
  const bool prompts = std::find(flags.begin(), flags.end(), "--prompt") != flags.end();
  const std::string text = fmt::format("{}", fmt::join(words, " "));
  return unexpected(
      fmt::format("'{}' was not expected; {}", text, prompts ? fmt::format("a prompt is --prompt \"{}\"", text) : see),
      {words[0]});
}

}  // namespace some
