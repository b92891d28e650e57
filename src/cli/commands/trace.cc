#include "analysis/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "analysis/read.h"
#include "analysis/routes_csv.h"
#include "cli/model_flags.h"
#include "cli/show.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "inference/generate.h"

namespace some {
namespace {

struct TraceFlags {
  ModelFlags model;
  std::string text, prompt, layers, html, memory, csv, data;
  std::int64_t documents = 200;
  GenerateOptions generate;
  bool json = false;
};

}  // namespace

void print_trace(const Trace& trace, const OpenedRun& run) {
  const Choices& choices = trace.choices;
  const auto k = static_cast<std::size_t>(choices.top_k);
  std::size_t widest = 5;
  for (const std::string& word : trace.words) widest = std::max(widest, display_width(visible(word)));
  widest = std::min<std::size_t>(widest, 24);
  std::vector<std::vector<std::string>> cells;
  const auto title = [&](int layer) {
    return fmt::format("layer {}{}", layer, layer == run.recipe.model.layers / 2 ? " (middle)" : "");
  };
  std::size_t cell_width = 8;
  for (const int layer : trace.layers) cell_width = std::max(cell_width, display_width(title(layer)));
  for (std::size_t t = 0; t < choices.tokens.size(); ++t) {
    auto& row = cells.emplace_back();
    for (const int layer : trace.layers) {
      const LayerAssignments& firings = choices.layers[static_cast<std::size_t>(layer)];
      std::string cell;
      for (std::size_t i = t * k; i < (t + 1) * k; ++i)
        cell += fmt::format("{}{}:{:.2f}", cell.empty() ? "" : " ", firings.experts[i], firings.gates[i]);
      cell_width = std::max(cell_width, display_width(cell));
      row.push_back(cell);
    }
  }
  fmt::print("{} at step {}: active experts of each token as expert:gate, in top-k order\n\n", run.paths.folder,
             run.step);
  std::string header = fmt::format("{:>4}  {}", "", padded("token", widest));
  for (const int layer : trace.layers) header += "  " + padded(title(layer), cell_width);
  while (header.back() == ' ') header.pop_back();
  fmt::print("{}\n", header);
  for (std::size_t t = 0; t < cells.size(); ++t) {
    if (trace.prompt_tokens > 0 && t == trace.prompt_tokens) fmt::print("      -- generated from here --\n");
    std::string line = fmt::format("{:>4}  {}", t, padded(visible(trace.words[t]), widest));
    for (const std::string& cell : cells[t]) line += "  " + padded(cell, cell_width);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    fmt::print("{}\n", line);
  }
  if (trace.remembered.empty()) return;
  fmt::print("\n");
  std::vector<SourcedToken> sourced;
  for (std::size_t t = 1; t < trace.remembered.size(); ++t)
    sourced.push_back({static_cast<std::int64_t>(t), trace.words[t], trace.remembered[t]});
  print_sources(sourced);
}

namespace {

void write_csv(const std::string& file, const Choices& choices, const std::vector<int>& layers, const OpenedRun& run) {
  write_output_file(file, [&](const ByteSink& sink) {
    write_routes(choices, layers, run.tokenizer, [&](std::string_view text) { sink(text.data(), text.size()); });
  });
}

// The routes of a whole text, which are written to a file only.
void trace_data(const TraceFlags& options) {
  if (!options.html.empty() || !options.memory.empty())
    bad_input(Code::option_needs_another, "{} traces one short text; it requires --text or --prompt",
              options.html.empty() ? "--memory" : "--html");
  OpenedRun run = open_run(options.model);
  require_experts(run, "trace");
  const std::vector<int> layers = parse_layers(options.layers, run.recipe.model);
  const AnalysisText text = load_analysis_text(run, options.data, options.documents);
  CollectOptions collect;
  collect.max_documents = options.documents;
  collect.rows = run.recipe.train.batch;
  collect.pad_id = run.tokenizer.pad_id();
  collect.eos_id = run.tokenizer.eos_id();
  collect.long_documents = run.recipe.data.long_documents;
  const Choices choices = collect_assignments(*run.model, text.data, collect);
  write_csv(options.csv, choices, layers, run);
  if (options.json)
    print_json({{"file", options.csv},
                {"data", text.source},
                {"documents", text.documents},
                {"positions", choices.positions()},
                {"layers", layers}});
  else
    fmt::print("{}: {} positions of {} documents ({}), {} layers, {} experts each\n", options.csv, choices.positions(),
               text.documents, text.source, layers.size(), choices.top_k);
}

void run(const TraceFlags& options) {
  const bool single = !options.text.empty() || !options.prompt.empty();
  if (!single && !options.csv.empty()) {
    trace_data(options);
    return;
  }
  if (!options.data.empty())
    bad_input(Code::option_needs_another, "{} requires --csv FILE, without --text or --prompt", "--data");
  if (options.text.empty() == options.prompt.empty())
    bad_input(
        Code::option_conflict,
        "use --text \"...\" to trace a text, --prompt \"...\" to continue it first, or --csv FILE for a whole text");
  OpenedRun run = open_run(options.model);
  const std::vector<int> layers = parse_layers(options.layers, run.recipe.model);
  Trace trace;
  std::optional<Memory> memory;
  if (!options.memory.empty()) memory = open_memory(run, options.memory);
  Memory* const remembers = memory ? &*memory : nullptr;
  if (!options.text.empty()) {
    trace = trace_text(run, options.text, layers, remembers);
  } else {
    trace_text(run, options.prompt,
               layers);  // a run without experts or a prompt without tokens is rejected before anything is written
    GenerateOptions how = options.generate;
    how.slide = false;  // the traced text is read in one pass
    how.memory = remembers;
    const Generated generated = generate(*run.model, run.tokenizer, {options.prompt}, how).front();
    std::vector<TokenId> ids = generated.prompt;
    ids.insert(ids.end(), generated.tokens.begin(), generated.tokens.end());
    trace = trace_tokens(run, ids, layers, remembers);
    trace.prompt_tokens = generated.prompt.size();
    trace.stopped = generated.stopped;
  }
  if (!options.html.empty()) write_output_file(options.html, trace_page(trace, run));
  if (!options.csv.empty()) write_csv(options.csv, trace.choices, layers, run);
  if (options.json) {
    print_json(to_json(trace, run));
    return;
  }
  print_trace(trace, run);
  if (!options.html.empty()) fmt::print("\npage: {}\n", options.html);
}

void set_up_trace(Command& command) {
  auto options = std::make_shared<TraceFlags>();
  add_model_flags(command, options->model);
  command.add_option("--text", options->text, "text to trace");
  command.add_option("--prompt", options->prompt, "prompt; the prompt and its continuation are traced");
  command.add_option("--max-tokens", options->generate.max_tokens, "with --prompt: maximum number of new tokens")
      ->capture_default_str();
  command
      .add_option("--temperature", options->generate.temperature,
                  "with --prompt: sampling temperature; 0 = always the most likely token")
      ->capture_default_str();
  command.add_option("--seed", options->generate.seed, "with --prompt: seed of the sampling")->capture_default_str();
  command.add_option("--layers,--layer", options->layers,
                     "comma-separated layer numbers, counted from 0 (default: all)");
  command.add_option("--memory", options->memory,
                     "memory of this run; shows its share in each prediction and the source passages");
  command.add_option("--html", options->html, "also write an interactive HTML page");
  command.add_option("--csv", options->csv,
                     "CSV file for every token's experts and gates; without --text or --prompt, of a whole text");
  command.add_option("--data", options->data,
                     "with --csv: file, folder or builtin:DOMAIN (default: the run's validation data)");
  command
      .add_option("--max-documents", options->documents,
                  "with --csv: maximum number of documents, from the first; 0 = all")
      ->not_negative()
      ->capture_default_str();
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec trace_command() {
  return {
      .name = "trace",
      .group = CommandGroup::look_inside,
      .summary = "show which experts each token of a text chose, layer by layer",
      .examples = {{"trace runs/tiny --text \"Lily likes cats.\"", ""},
                   {"trace runs/tiny --prompt \"Once upon\" --html trace.html", "an interactive HTML page"},
                   {"trace runs/tiny --csv routes.csv", "the experts of every token of the validation text"}},
      .json = "the trace",
      .set_up = set_up_trace,
  };
}

}  // namespace some
