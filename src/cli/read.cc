#include "study/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "cli/commands.h"

namespace some::cli {
namespace {

struct ReadFlags {
  ModelFlags model;
  ReadOptions read;
  std::string html;
  bool plain_cache = false;
  bool json = false;
};

// Windows merged into at most `rows` of about equally many.
void print_windows(const nlohmann::json& windows, bool frozen, std::size_t rows) {
  const std::size_t merged = std::max<std::size_t>(1, (windows.size() + rows - 1) / rows);
  fmt::print("\n     tokens read   frozen loss{}\n", frozen ? "" : "   with memory      gain    births      hits");
  std::int64_t read = 0;
  for (std::size_t first = 0; first < windows.size(); first += merged) {
    double alone = 0, mixed = 0;
    std::int64_t tokens = 0, births = 0, hits = 0;
    for (std::size_t i = first; i < std::min(windows.size(), first + merged); ++i) {
      const auto count = windows[i]["tokens"].get<std::int64_t>();
      tokens += count;
      alone += windows[i]["frozen"].get<double>() * static_cast<double>(count);
      mixed += windows[i]["loss"].get<double>() * static_cast<double>(count);
      births += windows[i]["births"].get<std::int64_t>();
      hits += windows[i]["hits"].get<std::int64_t>();
    }
    read += tokens;
    const double n = static_cast<double>(std::max<std::int64_t>(1, tokens));
    fmt::print("{:>16}   {:>11.4f}", read, alone / n);
    if (!frozen) fmt::print("   {:>11.4f}   {:+.4f}  {:>8}  {:>8}", mixed / n, (alone - mixed) / n, births, hits);
    fmt::print("\n");
  }
}

void print_report(const nlohmann::json& report, bool frozen) {
  for (const auto& text : report["texts"]) {
    const auto tokens = text["tokens"].get<std::int64_t>();
    if (tokens == 0) {
      fmt::print("{}: the memory has read it already, all {} tokens\n", text["text"].get<std::string>(),
                 text["of"].get<std::int64_t>());
      continue;
    }
    const auto from = text["from"].get<std::int64_t>();
    fmt::print("{} at step {} reads {}{}: {} tokens in windows of {}, {} tokens/s\n", report["run"].get<std::string>(),
               report["step"].get<std::int64_t>(), text["text"].get<std::string>(),
               from > 1 ? fmt::format(", on from token {}", from) : "", tokens, report["window"].get<std::int64_t>(),
               human_count(static_cast<double>(tokens) / std::max(1e-9, text["seconds"].get<double>())));
    print_windows(text["windows"], frozen, 16);
    if (!frozen)
      fmt::print("\nthe model alone {:.4f}, with its memory {:.4f} nats a token: {} {:.4f}\n",
                 text["frozen"].get<double>(), text["loss"].get<double>(),
                 text["gain"].get<double>() >= 0 ? "gained" : "lost", std::abs(text["gain"].get<double>()));
    else
      fmt::print("\nthe model alone {:.4f} nats a token\n", text["frozen"].get<double>());
  }
  if (frozen) return;
  if (report.contains("original")) {
    const auto& original = report["original"];
    fmt::print("on the run's validation text ({} tokens) the memory {} {:.4f}: {:.4f} without, {:.4f} with it\n",
               original["tokens"].get<std::int64_t>(), original["lost"].get<double>() > 0 ? "costs" : "gains",
               std::abs(original["lost"].get<double>()), original["frozen"].get<double>(),
               original["loss"].get<double>());
  }
  const auto& memory = report["memory"];
  fmt::print(
      "{} of {} slots hold something{}\n", memory["slots_in_use"].get<std::int64_t>(),
      memory["settings"]["slots"].get<std::int64_t>(),
      memory["file"].get<std::string>().empty() ? "" : fmt::format("; memory: {}", memory["file"].get<std::string>()));
  if (report["stopped"].get<bool>())
    fmt::print("stopped: what was read is kept; the same command reads on from there\n");
}

void run(ReadFlags options) {
  if (options.plain_cache) {
    if (options.read.choices.match) bad_input("--plain-cache merges nothing: it has no --match");
    options.read.choices.match = never_match;
  }
  OpenedRun run = open_run(options.model);
  if (options.read.memory.empty() && !options.read.frozen)
    options.read.memory = run.paths.folder + "/memory.safetensors";
  if (is_terminal()) {
    options.read.progress = [](const std::string& what, std::int64_t done, std::int64_t total) {
      redraw(done < total ? fmt::format("reading {}: {} of {} tokens", what, done, total) : std::string());
    };
  }
  options.read.stop = [] { return received_signal() != 0; };
  options.read.keep_frames = !options.html.empty();
  ReadMemory kept;
  const nlohmann::json report = read_texts(run, options.read, &kept);
  if (!options.html.empty()) write_file_atomic(options.html, read_page(report, kept, run));
  if (options.json)
    print_json(report);
  else
    print_report(report, options.read.frozen);
  if (!options.html.empty() && !options.json) fmt::print("page: {}\n", options.html);
  if (report["stopped"].get<bool>()) exit_code = 128 + received_signal();
}

}  // namespace

void add_memory_flags(Command& command, MemoryChoices& choices) {
  command.add_option("--slots", choices.slots, "slots of a new memory (default: 4096)");
  command.add_option("--match", choices.match,
                     "how near a key of the same word must be to be the same slot (default: 0.8)");
  command.add_option("--sharpness", choices.sharpness, "how sharply nearness counts; several, and the mixture chooses")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--decay", choices.decay, "of the slots' usage, a window (default: 0.001)");
  command.add_option("--share", choices.share, "what each weight of the mixture is given anew (default: 0.01)");
  command.add_option("--window", choices.window,
                     "tokens from one lesson to the next (default: half of model.seq_len, at most 256)");
  command.add_flag("--no-counts", choices.no_counts, "a control: counts are left out of what a slot says");
}

void add_read(Command& app) {
  auto options = std::make_shared<ReadFlags>();
  Command* command = app.add_subcommand(
      "read", "read text into a memory of the model: every token is predicted before it is learnt from");
  add_model_flags(*command, options->model);
  command->add_option("TEXT", options->read.texts, "files, folders or builtin:DOMAIN")->required();
  command->add_option("--memory", options->read.memory,
                      "the memory's file, made where there is none (default: RUN/memory.safetensors)");
  add_memory_flags(*command, options->read.choices);
  command->add_flag("--plain-cache", options->plain_cache, "a control: nothing is merged, the oldest slot goes first");
  command->add_option("--tokens", options->read.tokens, "only the first N tokens of each text; 0: all")
      ->capture_default_str();
  command->add_option("--stories", options->read.stories, "only the first N documents of each text; 0: all")
      ->capture_default_str();
  command
      ->add_option("--original", options->read.original_tokens,
                   "tokens of the run's validation text to measure what the memory costs there; 0: not at all")
      ->capture_default_str();
  command->add_flag("--frozen", options->read.frozen, "the model alone, for its loss and time");
  command->add_option("--html", options->html, "also write a page: losses, and the store while it reads");
  command->add_flag("--json", options->json, "print the report as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace some::cli
