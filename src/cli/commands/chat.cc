// `some chat`: an interactive prompt; the model continues the text entered line by line.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>

#include "analysis/read.h"
#include "analysis/trace.h"
#include "cli/line_editor.h"
#include "cli/model_flags.h"
#include "cli/show.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "inference/generate.h"
#include "memory/memory_file.h"
#include "recipe/schema.h"
#include "runs/run.h"

namespace some {
namespace {

struct ChatFlags {
  ModelFlags model;
  GenerateOptions generate;
  std::string memory;
  bool learn = false;
};

struct ChatCommand {
  const char* name;
  const char* value;  // placeholder for its value in help; empty: takes no value
  const char* meaning;
};
const ChatCommand commands[] = {
    {"/temperature", "X", "0 = always the most likely token; higher = more varied text"},
    {"/top-k", "N", "sample from the N most likely tokens; 0 = all"},
    {"/top-p", "X", "sample from the most likely tokens with this total probability; 1 = all"},
    {"/tokens", "N", "maximum number of tokens per answer"},
    {"/seed", "N", "seed of the next answer; later answers use the next numbers"},
    {"/again", "", "another answer to the same text"},
    {"/trace", "[FILE.html]", "which experts saw the tokens of the last text, as a table or a page"},
    {"/sources", "", "with a memory: the shares of model, slots and contexts in each new token, and passages"},
    {"/settings", "", "current settings"},
    {"/help", "", "this list"},
    {"/quit", "", "leave (or Ctrl-D)"},
};

class Chat {
 public:
  Chat(OpenedRun run, const ChatFlags& options)
      : run_(std::move(run)), options_(options.generate), memory_file_(options.memory), learn_(options.learn) {
    options_.stop = [] { return interrupted(); };
    if (memory_file_.empty()) return;
    keeper_.emplace(memory_file_);
    memory_ = learn_ ? open_or_create_memory(run_, memory_file_, default_memory_settings(run_))
                     : open_memory(run_, memory_file_);
    options_.memory = &*memory_;
    options_.sources = max_sources;
  }

  void talk() {
    LineEditor editor(history_file("chat-history"));
    shows_ = editor.interactive();
    if (shows_) {
      say("{} at step {}. Type the beginning of a text and the model continues it; an empty line continues "
          "further.\nCtrl-C stops an answer, Ctrl-D ends the program, /help lists commands.\n",
          run_.paths.folder, run_.step);
    }
    for (std::string line;;) {
      const LineEditor::ReadResult got = editor.read("> ", line);
      if (got == LineEditor::ReadResult::end) break;
      if (got == LineEditor::ReadResult::interrupted) continue;
      try {
        if (!line.empty() && line[0] == '/') {
          if (!obey(line)) return;
        } else {
          if (learn_ && !line.empty()) {
            learn_typed_text(run_, *memory_, line);
            keeper_->save(*memory_);
          }
          answer(line.empty() ? text_ : line);
        }
      } catch (const Error& error) {
        if (error.fault() != Fault::input) throw;
        say("{}\n", error.what());  // a typing mistake must not end the session
      }
      std::fflush(stdout);
    }
    if (shows_) fmt::print("\n");
  }

 private:
  void answer(const std::string& prompt) {
    if (prompt.empty()) {
      if (shows_) say("type some text first\n");
      return;
    }
    asked_ = prompt;
    const auto started = std::chrono::steady_clock::now();
    // On a terminal the prompt is already in the line above.
    bool prompt_printed = false;
    const auto begin = [&] {
      if (!shows_ && !prompt_printed) fmt::print("{}", prompt);
      prompt_printed = true;
    };
    const bool stops = !options_.stop_strings.empty();
    std::size_t printed = 0;
    std::optional<SourceFinder> finder;
    if (memory_) finder.emplace(*memory_, run_.tokenizer);
    std::vector<SourcedToken> sourced;
    const auto show = [&](std::size_t, const TokenEvent& event) {
      begin();
      if (finder)
        sourced.push_back({event.number, std::string(run_.tokenizer.token_bytes(event.token)),
                           finder->find(event.memory, max_sources, words_around_source)});
      // With stop strings, text is held back while it may be the beginning of one.
      fmt::print("{}", stops ? event.text : shown_token(run_.tokenizer, event.token));
      printed += event.text.size();
      std::fflush(stdout);
    };
    const Generated out = generate(*run_.model, run_.tokenizer, {prompt}, options_, show).front();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    begin();
    fmt::print("{}\n{}", stops ? out.continuation.substr(printed) : "", shows_ ? "" : "\n");
    std::fflush(stdout);
    text_ = out.text;
    for (SourcedToken& one : sourced) one.index += std::ssize(out.prompt);
    sourced_ = std::move(sourced);
    last_ = out;
    options_.seed += 1;
    if (shows_)
      say("({}{})\n", format_rate(out.tokens.size(), seconds),
          out.stopped == "asked"    ? ", stopped"
          : out.stopped == "length" ? ", not finished: an empty line continues"
                                    : "");
  }

  void trace(const std::string& file) {
    if (last_.prompt.empty()) bad_input(Code::prompt_empty, "/trace requires a generated text; generate one first");
    std::vector<TokenId> ids = last_.prompt;
    ids.insert(ids.end(), last_.tokens.begin(), last_.tokens.end());
    const auto most = static_cast<std::size_t>(run_.recipe.model.seq_len);
    const std::size_t left_out = ids.size() > most ? ids.size() - most : 0;
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(left_out));
    Trace trace = trace_tokens(run_, ids, parse_layers("", run_.recipe.model), memory_ ? &*memory_ : nullptr);
    if (last_.prompt.size() > left_out) trace.prompt_tokens = last_.prompt.size() - left_out;
    trace.stopped = last_.stopped;
    if (left_out > 0) say("(the last {} tokens, the context length of the model)\n", most);
    if (file.empty()) {
      print_trace(trace, run_);
      return;
    }
    write_output_file(file, trace_page(trace, run_));
    fmt::print("page: {}\n", file);
  }

  void sources() const {
    if (!memory_) bad_input(Code::option_needs_another, "{} requires --memory FILE", "/sources");
    if (sourced_.empty()) bad_input(Code::prompt_empty, "/sources requires a generated text; generate one first");
    print_sources(sourced_);
  }

  void help() const {
    for (const ChatCommand& one : commands)
      fmt::print("  {:<24} {}\n", fmt::format("{} {}", one.name, one.value), one.meaning);
  }

  void settings() const {
    fmt::print("temperature {}, top-k {}, top-p {}, at most {} tokens, next seed {}\n", options_.temperature,
               options_.top_k, options_.top_p, options_.max_tokens, options_.seed);
  }

  template <typename Number>
  static Number number(const std::string& name, const std::string& value, Number low, Number high) {
    Number out{};
    const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || rest != value.data() + value.size() || !(out >= low && out <= high))
      bad_input(Code::option_invalid, "{} must be a number from {} to {}{}", name, low, high,
                value.empty() ? "" : fmt::format(", not '{}'", value));
    return out;
  }

  // Runs a slash command. Returns false to leave the session.
  bool obey(const std::string& line) {
    const std::size_t blank = line.find(' ');
    const std::string name = line.substr(0, blank);
    const std::size_t begin = blank == std::string::npos ? blank : line.find_first_not_of(' ', blank);
    std::string value = begin == std::string::npos ? "" : line.substr(begin);
    while (!value.empty() && value.back() == ' ') value.pop_back();
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/help")
      help();
    else if (name == "/settings")
      settings();
    else if (name == "/again")
      answer(asked_);
    else if (name == "/trace")
      trace(value);
    else if (name == "/sources")
      sources();
    else if (name == "/temperature")
      options_.temperature = number(name, value, 0.0, 100.0);
    else if (name == "/top-k")
      options_.top_k = number(name, value, 0, run_.recipe.model.vocab);
    else if (name == "/top-p")
      options_.top_p = std::max(number(name, value, 0.0, 1.0), 1e-9);
    else if (name == "/tokens")
      options_.max_tokens = number<std::int64_t>(name, value, 1, 1000000000);
    else if (name == "/seed")
      options_.seed = number<std::uint64_t>(name, value, 0, ~std::uint64_t{0});
    else
      unknown(name);
    return true;
  }

  [[noreturn]] static void unknown(const std::string& name) {
    std::vector<std::string> names;
    for (const ChatCommand& one : commands) names.emplace_back(one.name);
    const std::string meant = misspelled_name(name, names);
    bad_input(Code::command_unknown, "{}: not found; {}", name,
              meant.empty() ? "/help lists commands" : "did you mean " + meant + "?");
  }

  OpenedRun run_;
  GenerateOptions options_;
  std::string memory_file_;
  std::optional<MemorySaver> keeper_;
  bool learn_;
  std::optional<Memory> memory_;
  bool shows_ = false;  // interactive session
  std::string text_, asked_;
  Generated last_;
  std::vector<SourcedToken> sourced_;  // the new tokens of the last text; of a session with a memory
};

void run(ChatFlags options) {
  check(options.generate);
  if (options.learn && options.memory.empty())
    bad_input(Code::option_needs_another, "{} requires --memory FILE", "--learn");
  block_interrupts();
  OpenedRun run = open_run(options.model);
  Chat(std::move(run), options).talk();
}

void set_up_chat(Command& command) {
  auto options = std::make_shared<ChatFlags>();
  add_model_flags(command, options->model);
  add_sampling_flags(command, options->generate);
  command.add_option("--memory", options->memory, "memory of this run, mixed into every prediction");
  command.add_flag("--learn", options->learn,
                   "with --memory: the memory learns from every line you type and is saved (created if missing)");
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec chat_command() {
  return {
      .name = "chat",
      .group = CommandGroup::train_and_use,
      .summary = "generate text interactively",
      .examples = {{"chat runs/tiny", "/help lists commands"}, {"chat runs/tiny < prompts.txt", ""}},
      .set_up = set_up_chat,
  };
}

}  // namespace some
