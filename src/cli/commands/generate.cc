#include "inference/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <optional>
#include <sstream>

#include "analysis/assignments.h"
#include "analysis/read.h"
#include "cli/model_flags.h"
#include "cli/show.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "inference/key_learner.h"
#include "memory/memory_file.h"
#include "plot/escape_html.h"
#include "runs/run.h"

namespace some {
namespace {

struct GenerateFlags {
  ModelFlags model;
  std::vector<std::string> prompts;
  std::string file;
  GenerateOptions generate;
  int samples = 1;
  bool adapt = false;
  std::int64_t adapt_window = 32;
  std::string memory;
  bool learn = false, sources = false;
  bool json = false;
};

std::vector<std::string> given_prompts(const GenerateFlags& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.file.empty()) {
    std::string text = options.file == "-" ? standard_input() : read_file(options.file);
    // line ends at the end of the file are not part of the text
    while (!text.empty() && text.back() == '\n') text.pop_back();
    prompts.push_back(text);
  } else if (prompts.empty() && isatty(STDIN_FILENO) == 0) {
    std::istringstream lines(standard_input());
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) prompts.push_back(line);
    }
  }
  if (prompts.empty())
    bad_input(Code::argument_missing, "no prompt; use --prompt \"...\", or standard input with one prompt per line");
  return prompts;
}

void run(GenerateFlags options) {
  if (options.samples < 1) bad_input(Code::option_invalid, "{} {}: must be >= 1", "--samples", options.samples);
  check(options.generate);
  read_run_recipe(options.model.run);  // a wrong run is reported before a missing prompt
  const std::vector<std::string> given = given_prompts(options);
  constexpr std::size_t max_texts = 65536;
  if (given.size() * static_cast<std::size_t>(options.samples) > max_texts)
    bad_input(Code::option_invalid, "{} {} for each of {} prompts: must be at most {} texts in total", "--samples",
              options.samples, given.size(), max_texts);
  std::vector<std::string> prompts;
  for (const std::string& prompt : given)
    prompts.insert(prompts.end(), static_cast<std::size_t>(options.samples), prompt);
  OpenedRun run = open_run(options.model);
  if (!options.adapt && !options.generate.adapt_rules.empty())
    bad_input(Code::option_needs_another, "{} requires --adapt", "--rules");
  std::optional<KeySnapshot> start;
  if (options.adapt) {
    require_experts(run, "adapt");
    if (options.adapt_window < 1)
      bad_input(Code::option_invalid, "{} {}: must be >= 1", "--adapt-window", options.adapt_window);
    options.generate.adapt_window = options.adapt_window;
    choose_rules(run.recipe.model.keys,
                 options.generate.adapt_rules);  // invalid names are reported before anything is written
    options.generate.adapt_step = run.step;
    start.emplace(*run.model);
  }
  std::optional<Memory> memory;
  if (options.learn && options.memory.empty())
    bad_input(Code::option_needs_another, "{} requires --memory FILE", "--learn");
  MemorySaver keeper(options.memory);
  if (!options.memory.empty()) {
    memory = options.learn ? open_or_create_memory(run, options.memory, default_memory_settings(run))
                           : open_memory(run, options.memory);
    options.generate.memory = &*memory;
  }
  if (options.sources && options.memory.empty())
    bad_input(Code::option_needs_another, "{} requires --memory FILE", "--sources");
  options.generate.sources = options.sources ? max_sources : 0;
  if (options.learn) {
    for (const std::string& prompt : given) learn_typed_text(run, *memory, prompt);
    keeper.save(*memory);
  }
  const bool streamed = !options.json && prompts.size() == 1;
  const bool stops = !options.generate.stop_strings.empty();
  std::size_t printed = 0;
  std::optional<SourceFinder> finder;
  if (options.sources) finder.emplace(*memory, run.tokenizer);
  std::vector<std::vector<SourcedToken>> sourced(prompts.size());
  bool prompt_printed = false;  // the prompt is printed with the first token, so that a rejected prompt is not printed
  const auto started = std::chrono::steady_clock::now();
  const std::vector<Generated> generated =
      generate(*run.model, run.tokenizer, prompts, options.generate, [&](std::size_t index, const TokenEvent& event) {
        if (finder)
          sourced[index].push_back({event.number, std::string(run.tokenizer.token_bytes(event.token)),
                                    finder->find(event.memory, max_sources, words_around_source)});
        if (!streamed) return;
        if (!prompt_printed) fmt::print("{}", prompts[0]);
        prompt_printed = true;
        // With stop strings, text is held back while it may be the beginning of one.
        const std::string text = stops ? event.text : shown_token(run.tokenizer, event.token);
        printed += event.text.size();
        fmt::print("{}", text);
        std::fflush(stdout);
      });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (std::size_t i = 0; i < generated.size(); ++i) {
      list.push_back({{"prompt", prompts[i]},
                      {"text", generated[i].text},
                      {"tokens", generated[i].tokens},
                      {"stopped", generated[i].stopped}});
      if (!finder) continue;
      nlohmann::json& all = list.back()["sources"] = nlohmann::json::array();
      for (const SourcedToken& token : sourced[i]) {
        all.push_back(to_json(token.sources));
        all.back()["index"] = std::ssize(generated[i].prompt) + token.index;
        all.back()["token"] = valid_text(token.text);
        all.back()["probability"] = token.sources.probability;
      }
    }
    nlohmann::json out{
        {"run", options.model.run}, {"step", run.step}, {"seed", options.generate.seed}, {"samples", list}};
    if (start) {
      out["adapt"] = {{"window", options.adapt_window},
                      {"rules", rules_text(choose_rules(run.recipe.model.keys, options.generate.adapt_rules))},
                      {"layers", nlohmann::json::array()}};
      for (int layer = 0; layer < run.recipe.model.layers; ++layer) {
        const KeySnapshot::Distance moved = start->distance(*run.model, layer);
        out["adapt"]["layers"].push_back(
            {{"layer", layer}, {"key_moved", {{"mean", moved.mean}, {"max", moved.most}}}});
      }
    }
    print_json(out);
    return;
  }
  if (streamed)
    fmt::print("{}{}\n", prompt_printed ? "" : prompts[0], stops ? generated[0].continuation.substr(printed) : "");
  for (std::size_t i = 0; !streamed && i < generated.size(); ++i)
    fmt::print("{}{}\n", i > 0 ? "\n---\n" : "", generated[i].text);
  for (std::size_t i = 0; finder && i < generated.size(); ++i) {
    for (SourcedToken& token : sourced[i]) token.index += std::ssize(generated[i].prompt);
    fmt::print("\n");
    if (generated.size() > 1) fmt::print("text {}: ", i + 1);
    print_sources(sourced[i]);
  }
  // The following messages go to standard error, not into the text.
  std::fflush(stdout);
  std::size_t tokens = 0;
  for (const Generated& one : generated) tokens += one.tokens.size();
  say("({})\n", format_rate(tokens, seconds));
  if (!start) return;
  double mean = 0, most = 0;
  for (int layer = 0; layer < run.recipe.model.layers; ++layer) {
    const KeySnapshot::Distance moved = start->distance(*run.model, layer);
    mean += moved.mean / run.recipe.model.layers;
    most = std::max(most, moved.most);
  }
  say("(keys learned by {}, one update per {} tokens: moved {:.4f} on average, {:.4f} at most; the run itself is "
      "unchanged)\n",
      rules_text(choose_rules(run.recipe.model.keys, options.generate.adapt_rules)), options.adapt_window, mean, most);
}

void set_up_generate(Command& command) {
  auto options = std::make_shared<GenerateFlags>();
  add_model_flags(command, options->model);
  command
      .add_option("-p,--prompt", options->prompts,
                  "prompt; repeatable for a batch (default: standard input, one per line)")
      ->allow_extra_args(false);
  command.add_option("--file", options->file, "file with another prompt; - = standard input");
  command.add_option("--samples", options->samples, "continuations of each prompt")->capture_default_str();
  add_sampling_flags(command, options->generate);
  command.add_flag("--adapt", options->adapt,
                   "keys keep learning from the prompt and the new text; the run is not changed");
  command.add_option("--adapt-window", options->adapt_window, "with --adapt: tokens per key update")
      ->capture_default_str();
  command.add_option("--rules", options->generate.adapt_rules,
                     "with --adapt: rules, any of alpha,beta,delta (default: those of training)");
  command.add_option("--memory", options->memory, "memory of this run, mixed into every prediction");
  command.add_flag("--learn", options->learn,
                   "with --memory: the memory first learns from the prompts and is saved (created if missing)");
  command.add_flag("--sources", options->sources,
                   "with --memory: a table of each new token's sources: the shares of model, slots and contexts in its "
                   "probability, and passages");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec generate_command() {
  return {
      .name = "generate",
      .group = CommandGroup::train_and_use,
      .summary = "generate text with a trained run",
      .examples = {{"generate runs/tiny --prompt \"Once upon a time\"", ""},
                   {"generate runs/tiny --prompt \"The fox\" --samples 3 --temperature 0.7", ""},
                   {"generate runs/tiny < prompts.txt", "one prompt per line"}},
      .json = "the result",
      .set_up = set_up_generate,
  };
}

}  // namespace some
