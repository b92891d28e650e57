#include "analysis/continual/continual.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/model_flags.h"
#include "cli/program.h"
#include "cli/show.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"

namespace some {
namespace {

struct ContinualFlags {
  ModelFlags model;
  std::vector<std::string> others;  // further runs
  ContinualOptions continual;
  std::vector<std::string> methods;
  std::string html;
  bool json = false;
};

const std::vector<std::pair<std::string, ContinualMethod>>& method_words() {
  static const std::vector<std::pair<std::string, ContinualMethod>> words{
      {"finetune", ContinualMethod::finetune},       {"ewc", ContinualMethod::ewc},
      {"replay-1", ContinualMethod::replay_1},       {"replay-10", ContinualMethod::replay_10},
      {"replay-self", ContinualMethod::replay_self}, {"lora", ContinualMethod::lora},
      {"dynamic", ContinualMethod::dynamic},         {"slots", ContinualMethod::slots},
      {"contexts", ContinualMethod::contexts},       {"counter", ContinualMethod::counter}};
  return words;
}

ContinualMethod method_of(const std::string& word) {
  std::vector<std::string> known;
  for (const auto& [name, method] : method_words()) {
    if (name == word) return method;
    known.push_back(name);
  }
  bad_input(Code::option_invalid, "{} {}: unknown method; use any of {}", "--methods", word, fmt::join(known, ", "));
}

void run(ContinualFlags options) {
  watch_signals();
  for (const std::string& word : options.methods) options.continual.methods.push_back(method_of(word));
  options.continual.stop = [] { return received_signal() != 0; };
  if (is_terminal())
    options.continual.progress = [](const std::string& what, std::int64_t done, std::int64_t total) {
      redraw(fmt::format("{} ({} of {})", what, done + 1, total));
    };
  std::vector<std::string> names{options.model.run};
  names.insert(names.end(), options.others.begin(), options.others.end());
  std::vector<ContinualReport> reports;
  for (const std::string& name : names) {
    if (received_signal() != 0) break;
    options.model.run = name;
    OpenedRun run = open_run(options.model);
    reports.push_back(measure_continual(run, options.continual));
  }
  if (is_terminal()) redraw("");
  if (received_signal() != 0) exit_code = 128 + received_signal();
  // A run that was stopped in the middle cannot be averaged with the others.
  if (reports.size() > 1 && reports.back().stopped) reports.pop_back();
  if (reports.empty() || reports.front().orders.empty()) return;
  if (!options.html.empty()) write_output_file(options.html, continual_page(reports));
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const ContinualReport& report : reports) list.push_back(to_json(report));
    print_json({{"runs", list}});
  } else {
    print_continual(reports);
    if (!options.html.empty()) fmt::print("page: {}\n", options.html);
  }
}

void set_up_continual(Command& command) {
  auto options = std::make_shared<ContinualFlags>();
  ContinualOptions& continual = options->continual;
  add_model_flags(command, options->model);
  command
      .add_option("TEXT", continual.texts,
                  "texts in the order in which they are learned: files, folders or builtin:DOMAIN")
      ->required();
  command
      .add_option("--also", options->others,
                  "another run, such as one with another seed; repeatable, results are means")
      ->allow_extra_args(false);
  command.add_flag("--both-orders", continual.both_orders, "also learn the texts in reverse order");
  command
      .add_option("--methods", options->methods,
                  "any of finetune, ewc, replay-1, replay-10, replay-self, lora, dynamic, slots, contexts, counter "
                  "(default: all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--tokens", continual.tokens, "number of tokens learned from each text")->capture_default_str();
  command.add_option("--test-tokens", continual.test_tokens, "number of held-out tokens per text for the loss")
      ->capture_default_str();
  ContinualSettings& settings = continual.settings;
  command.add_option("--epochs", settings.epochs, "passes of the gradient methods over each text")
      ->capture_default_str();
  command.add_option("--batch", settings.batch, "sequences per gradient step")->capture_default_str();
  command.add_option("--rate", settings.rate, "peak learning rate; 0 = 0.3 times that of the run")
      ->capture_default_str();
  command.add_option("--lora-rate", settings.lora_rate, "peak learning rate of LoRA; 0 = twice --rate")
      ->capture_default_str();
  command.add_option("--dynamic-rate", settings.dynamic_rate, "learning rate of dynamic evaluation")
      ->capture_default_str();
  command
      .add_option("--ewc", settings.ewc, "weight of the EWC penalty; 1 = an earlier text counts as much as the new one")
      ->capture_default_str();
  command.add_option("--rank", settings.rank, "rank of LoRA")->capture_default_str();
  command.add_option("--slots", continual.choices.slots, "slots of the memory (default: 4096)");
  command.add_option("--contexts", continual.choices.contexts, "tokens of the longest context (default: 5)");
  command.add_option("--context-entries", continual.choices.context_entries,
                     "maximum number of (context, following token) pairs (default: 131072)");
  command.add_option("--html", options->html, "also write a page with the matrix of every method");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

void print_continual(const std::vector<ContinualReport>& reports) {
  const auto summaries = summarize(reports);
  constexpr std::size_t width = 26;
  for (std::size_t o = 0; o < summaries.size(); ++o) {
    fmt::print("{}{}\n", o > 0 ? "\n" : "", fmt::join(reports[0].orders[o].texts, " -> "));
    fmt::print("{}  {:>8}  {:>10}  {:>8}  {:>8}  {:>8}  {:>8}   loss on each text at the end\n",
               padded("method", width), "average", "forgetting", "backward", "forward", "seconds", "kept MB");
    for (const ContinualSummary& one : summaries[o]) {
      std::string losses;
      for (const double loss : one.losses.back()) losses += fmt::format(" {:>6.3f}", loss);
      fmt::print("{}  {:>8.3f}  {:>10.3f}  {:>8.3f}  {:>8.3f}  {:>8.2f}  {:>8.2f}  {}\n",
                 padded(name_of(one.method), width), one.mean.average, one.mean.forgetting, one.mean.backward,
                 one.mean.forward, one.seconds, one.kept_bytes / 1e6, losses);
    }
  }
  if (reports.back().stopped) fmt::print("\nstopped; unfinished measurements are omitted\n");
}

CommandSpec continual_command() {
  return {
      .name = "continual",
      .group = CommandGroup::look_inside,
      .summary = "learn texts one after another with several methods, and measure forgetting",
      .examples = {{"continual runs/tiny builtin:nature builtin:recipes --tokens 2000 --test-tokens 300",
                    "fine-tuning, EWC, replay, LoRA, dynamic evaluation, memories, a counter"},
                   {"continual runs/tiny builtin:recipes --methods finetune,contexts --html matrix.html", ""}},
      .json = "the result",
      .set_up = set_up_continual,
  };
}

}  // namespace some
