#include "cli/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/commands.h"
#include "core/error.h"
#include "recipe/schema.h"

namespace some {
namespace {

void add_footers(Command& command) {
  std::size_t width = 0;
  const auto& examples = examples_of(command_path(command));
  for (const Example& one : examples) width = std::max(width, one.line.size());
  std::string text;
  for (const Example& one : examples) {
    const bool short_enough = width + one.comment.size() + 11 <= 100;
    text += "\n  some " + one.line;
    if (!one.comment.empty())
      text += std::string(short_enough ? width - one.line.size() + 2 : 2, ' ') + "# " + one.comment;
  }
  if (!text.empty()) command.footer((examples.size() > 1 ? "Examples:" : "Example:") + text);
  for (Command* sub : command.subcommands()) add_footers(*sub);
}

struct HelpOptions {
  std::vector<std::string> words;
};

}  // namespace

std::string command_path(const Command& command) {
  std::string path;
  for (const Command* at = &command; at->parent() != nullptr; at = at->parent())
    path = at->name() + (path.empty() ? "" : " " + path);
  return path;
}

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
      const std::string meant = misspelled_name(word, names), path = command_path(*at);
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
  const std::string path = command_path(*command);
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

void add_help(Command& app) {
  auto options = std::make_shared<HelpOptions>();
  Command* command = app.add_subcommand("help", "the help of a command");
  command->add_option("COMMAND", options->words, "such as train, or lab run");
  command->callback([options, &app] { fmt::print("{}", named_command(app, options->words)->help()); });
}

void add_commands(Command& app) {
  const auto group = [&](const std::string& title, std::initializer_list<void (*)(Command&)> adders) {
    for (const auto add : adders) {
      const std::size_t before = app.subcommands().size();
      add(app);
      const auto all = app.subcommands();
      for (std::size_t i = before; i < all.size(); ++i) {
        if (!all[i]->is_hidden()) all[i]->group(title);
      }
    }
  };
  group("Train and use", {add_train, add_eval, add_generate, add_chat, add_adapt, add_read, add_memory});
  group("Other programs", {add_export, add_import, add_library});
  group("Look inside", {add_board, add_inspect, add_trace, add_guilds});
  group("Find things", {add_info, add_keys, add_runs, add_compare, add_help});
  group("Experiments", {add_lab, add_bench, add_verify});
  group("Text", {add_tokenizer, add_data});
  group("Shells and manual", {add_completion});
  add_footers(app);
}

}  // namespace some
