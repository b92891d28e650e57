// Shell completion and the manual page, both generated from the definition of the command line. The shell scripts only
// pass on the words typed so far; `some complete` returns the candidates.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "cli/places.h"
#include "cli/program.h"
#include "core/error.h"
#include "core/version.h"
#include "recipe/schema.h"
#include "runs/checkpoint.h"
#include "text/stories.h"

namespace some {
namespace {

namespace fs = std::filesystem;

// Candidates for the word at the end of the line, with descriptions. If `files` is set, the shell also offers file
// names.
struct Candidates {
  std::vector<std::pair<std::string, std::string>> words;
  bool files = false;

  void add(const std::string& word, const std::string& meaning = "") { words.emplace_back(word, meaning); }
};

void add_runs_to(Candidates& out) {
  for (const char* folder : {"runs", "lab", "."}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (fs::exists(entry.path() / "config.toml", ignored)) out.add(entry.path().lexically_normal().string());
    }
  }
  out.files = true;
}

void add_keys_to(Candidates& out, const std::string& typed) {
  const std::size_t sign = typed.find('=');
  if (sign == std::string::npos) {
    for (const RecipeKey& key : recipe_keys()) out.add(key.full_name() + "=", key.meaning);
    return;
  }
  const std::string name = typed.substr(0, sign);
  const RecipeKey* key = find_recipe_key(name);
  if (key == nullptr) return;
  std::vector<std::string> values = key->choices;
  if (key->kind == SettingKind::boolean) values = {"true", "false"};
  for (const std::string& value : values) out.add(name + "=" + value);
  out.files = values.empty() && key->kind == SettingKind::text;
}

// Adds the candidate values for a flag or positional argument, chosen by its name in the definition.
void add_values_to(Candidates& out, const std::string& name, const std::string& typed,
                   const std::vector<std::string>& words) {
  const auto add_all = [&](const std::vector<std::string>& values) {
    for (const std::string& value : values) out.add(value);
  };
  if (name == "RUN" || name == "RUNS" || name == "resume" || name == "from")
    add_runs_to(out);
  else if (name == "RECIPE" || name == "recipe") {
    add_all(recipe_names());
    out.files = true;
  } else if (name == "OVERRIDES")
    add_keys_to(out, typed);
  else if (name == "device")
    add_all({"auto", "cpu", "cuda"});
  else if (name == "precision")
    add_all({"fp32", "bf16", "f64"});
  else if (name == "kind")
    add_all({"bytelevel", "whitespace"});
  else if (name == "domain")
    add_all(story_domains());
  else if (name == "SHELL")
    add_all({"bash", "zsh", "fish"});
  else if (name == "checkpoint") {
    add_all({"latest", "best"});
    for (const std::string& word : words) {
      std::error_code ignored;
      if (!fs::exists(fs::path(word) / "config.toml", ignored)) continue;
      for (const CheckpointName& one : list_checkpoints(word)) out.add(fmt::format("{}", one.step));
    }
  } else if (name == "data") {
    for (const std::string& domain : story_domains()) out.add("builtin:" + domain);
    out.files = true;
  } else
    out.files = true;
}

Candidates complete(Command& app, std::vector<std::string> words) {
  Candidates out;
  const std::string typed = words.empty() ? "" : words.back();
  if (!words.empty()) words.pop_back();
  Command* command = &app;
  std::size_t places = 0;         // positional arguments seen so far
  std::optional<Option> waiting;  // a flag whose value follows
  for (const std::string& word : words) {
    if (waiting) {
      waiting.reset();
      continue;
    }
    if (word.starts_with("-")) {
      const std::optional<Option> option = command->find_option(word.substr(0, word.find('=')));
      if (option && option->takes_value() && word.find('=') == std::string::npos) waiting = option;
      continue;
    }
    const auto subs = command->subcommands();
    const auto found = std::find_if(subs.begin(), subs.end(), [&](Command* one) { return one->name() == word; });
    if (found != subs.end() && places == 0)
      command = *found;
    else
      ++places;
  }
  if (waiting) {
    add_values_to(out, waiting->name(), typed, words);
    return out;
  }
  if (typed.starts_with("-")) {
    for (const Option& option : command->options()) {
      for (const std::string& name : option.long_names()) out.add("--" + name, option.description());
    }
    return out;
  }
  const auto subs = visible_commands(*command);
  for (const Command* one : subs) out.add(one->name(), one->description());
  if (command->path() == "help") {
    for (const Command* one : visible_commands(app)) out.add(one->name(), one->description());
    return out;
  }
  // Finds the positional argument that the word belongs to; the last one may accept any number of words.
  std::size_t place = 0;
  for (const Option& option : command->options()) {
    if (!option.is_positional()) continue;
    const bool many = option.takes_several();
    if (place == places || (many && place <= places)) {
      add_values_to(out, option.name(), typed, words);
      return out;
    }
    ++place;
  }
  return out;
}

void answer(Command& app, const std::vector<std::string>& words) {
  const std::string typed = words.empty() ? "" : words.back();
  Candidates found = complete(app, words);
  for (const auto& [word, meaning] : found.words) {
    if (word.starts_with(typed)) fmt::print("{}\t{}\n", word, meaning);
  }
  if (found.files) fmt::print(":files\n");
}

// --- shell scripts ---

const char* const bash_script = R"script(# bash completion for some
_some() {
  local line files=0 typed=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  # The words as they were typed: = and : are no borders here.
  local -a words
  read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
  [[ ${COMP_LINE:0:COMP_POINT} == *' ' ]] && words+=("")
  local last=${words[${#words[@]}-1]}
  local cut=${last%"$typed"}
  while IFS= read -r line; do
    if [[ $line == :files ]]; then files=1; continue; fi
    line=${line%%$'\t'*}
    COMPREPLY+=("${line#"$cut"}")
  done < <("${COMP_WORDS[0]}" complete -- "${words[@]:1}" 2>/dev/null)
  if ((files)); then
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${last##*=}")
    compopt -o filenames 2>/dev/null
  fi
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _some some
)script";

const char* const zsh_script = R"script(#compdef some
# zsh completion for some
_some() {
  local line files=0
  local -a found
  while IFS= read -r line; do
    if [[ $line == :files ]]; then files=1; continue; fi
    found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done < <("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#found} )) && _describe -V some found
  if (( files )); then
    compset -P '*='
    _files
  fi
}
if [[ $funcstack[1] == _some ]]; then _some "$@"; else compdef _some some; fi
)script";

const char* const fish_script = R"script(# fish completion for some
function __some_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete -- $words[2..] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c some -f -a "(__some_complete)"
)script";

// --- manual page ---

std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out = "\\&" + out;
  return out;
}

std::string usage(const Command& command) {
  std::string line = "\\fBsome " + roff(command.path()) + "\\fR";
  if (!visible_commands(command).empty()) line += " \\fICOMMAND\\fR";
  for (const Option& option : command.options()) {
    if (!option.is_positional()) continue;
    const std::string name = "\\fI" + roff(option.name()) + "\\fR";
    line += option.is_required() ? " " + name : " [" + name + "]";
    if (option.takes_several()) line += "...";
  }
  return line + " [\\fIOPTIONS\\fR]";
}

void write_command(std::string& out, const Command& command) {
  const auto subs = visible_commands(command);
  if (subs.empty() || command.parent() != nullptr) {
    out += fmt::format(".SS \"some {}\"\n{}.\n.PP\n{}\n", command.path(), roff(command.description()), usage(command));
  }
  for (const Option& option : command.options()) {
    if (option.is_hidden()) continue;
    std::string names = roff(option.all_names());
    std::string text = option.description();
    if (!option.default_text().empty()) text += fmt::format(" (default: {})", option.default_text());
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", names, roff(text));
  }
  if (const auto& examples = command.spec().examples; !examples.empty()) {
    out += ".PP\n.nf\n.RS\n";
    for (const Example& one : examples)
      out += roff(fmt::format("some {}{}", one.line, one.comment.empty() ? "" : "   # " + one.comment)) + "\n";
    out += ".RE\n.fi\n";
  }
  for (const Command* sub : subs) write_command(out, *sub);
}

std::string manual(const Command& app) {
  std::string out = fmt::format(".TH SOME 1 \"\" \"{}\" \"User commands\"\n", program_version());
  out +=
      ".SH NAME\nsome \\- train, run, inspect and explain self\\-organizing mixture\\-of\\-experts language models\n";
  out += ".SH SYNOPSIS\n\\fBsome\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n";
  out +=
      ".SH DESCRIPTION\nIn a self\\-organizing mixture of experts every feed\\-forward block of a transformer is a "
      "large "
      "library of frozen random experts. Each has a key; the experts whose keys are nearest to "
      "a token's query process it. Keys learn by local rules without gradients, and can keep learning during "
      "use.\n.PP\n"
      "A model is described by a recipe, a TOML file; \\fBsome settings\\fR lists everything it can contain. Recipes "
      "that come "
      "with the program are found by name (\\fBsome lab list\\fR). With \\fB\\-\\-json\\fR a command prints one "
      "JSON object and nothing else on standard output.\n";
  out += ".SH COMMANDS\n";
  write_command(out, app);
  out +=
      ".SH EXIT STATUS\n0 success, 1 failure, 2 wrong usage or input; 130, 143 and 129 for a run that was stopped by "
      "Ctrl\\-C, "
      "SIGTERM or a lost terminal: it has finished its step and saved.\n"
      ".SH FILES\n.TP\n\\fIruns/NAME\\fR\na run: its resolved recipe (config.toml), tokenizer, metrics, "
      "checkpoints\n.TP\n"
      "\\fIruns/cache\\fR\ntokenized text, checked and rebuilt if it does not match; may be deleted\n.TP\n"
      "\\fI./recipes\\fR, \\fIrecipes\\fR next to the program, \\fIshare/some/recipes\\fR\nfolders in which recipes "
      "are "
      "searched, in this order\n.TP\n\\fI~/.local/state/some/chat\\-history\\fR\ninput history of \\fBsome chat\\fR\n";
  return out;
}

void set_up_completion(Command& command) {
  auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command.callback([shell] {
    if (*shell == "bash")
      fmt::print("{}", bash_script);
    else if (*shell == "zsh")
      fmt::print("{}", zsh_script);
    else if (*shell == "fish")
      fmt::print("{}", fish_script);
    else
      bad_input(Code::option_invalid, "no completion for {}; use bash, zsh or fish", *shell);
  });
}

void set_up_manual(Command& command) {
  command.callback([&command] { fmt::print("{}", manual(command.program())); });
}

void set_up_complete(Command& command) {
  auto words = std::make_shared<std::vector<std::string>>();
  command.add_option("WORDS", *words);
  command.callback([words, &command] { answer(command.program(), *words); });
}

}  // namespace

CommandSpec completion_command() {
  return {
      .name = "completion",
      .group = CommandGroup::shells,
      .summary = "print a shell script that completes commands, options, settings and runs",
      .examples = {{"completion bash > ~/.local/share/bash-completion/completions/some", ""},
                   {"completion fish > ~/.config/fish/completions/some.fish", ""}},
      .set_up = set_up_completion,
  };
}

CommandSpec manual_command() {
  return {
      .name = "manual",
      .group = CommandGroup::shells,
      .summary = "print the manual page, for man",
      .examples = {{"manual > some.1", "then: man ./some.1"}},
      .set_up = set_up_manual,
  };
}

CommandSpec complete_command() {
  return {
      .name = "complete",
      .group = CommandGroup::hidden,
      .summary = "candidates for the last word of a command line; used by the scripts",
      .set_up = set_up_complete,
  };
}

}  // namespace some
