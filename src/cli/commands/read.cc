#include "analysis/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/model_flags.h"
#include "cli/program.h"
#include "cli/ranks.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "train/rank_checks.h"

namespace some {
namespace {

struct ReadFlags {
  ModelFlags model;
  ReadOptions read;
  std::string html;
  bool json = false;
};

// Prints the windows, merged into at most `rows` rows of about equal numbers of windows.
void print_windows(const std::vector<WindowResult>& windows, bool frozen, std::size_t rows) {
  const std::size_t merged = std::max<std::size_t>(1, (windows.size() + rows - 1) / rows);
  fmt::print("\n     tokens read   frozen loss{}\n", frozen ? "" : "   with memory      gain    births      hits");
  std::int64_t read = 0;
  for (std::size_t first = 0; first < windows.size(); first += merged) {
    TextReading part;
    for (std::size_t i = first; i < std::min(windows.size(), first + merged); ++i) part.windows.push_back(windows[i]);
    const WindowResult sum = part.all();
    read += sum.tokens;
    fmt::print("{:>16}   {:>11.4f}", read, per_token(sum.frozen, sum.tokens));
    if (!frozen)
      fmt::print("   {:>11.4f}   {:+.4f}  {:>8}  {:>8}", per_token(sum.mixed, sum.tokens),
                 per_token(sum.frozen - sum.mixed, sum.tokens), sum.births, sum.hits);
    fmt::print("\n");
  }
}

void print_text(const ReadReport& report, const TextReading& reading) {
  const WindowResult sum = reading.all();
  const bool frozen = !report.memory;
  if (sum.tokens == 0) {
    fmt::print("{}: all {} tokens were read before\n", reading.text, reading.of);
    return;
  }
  fmt::print("{} at step {} reads {}{}: {} tokens in windows of {}, {} tokens/s\n", report.run, report.step,
             reading.text, reading.from > 1 ? fmt::format(", from token {}", reading.from) : "", sum.tokens,
             report.window, format_count(static_cast<double>(sum.tokens) / std::max(1e-9, reading.seconds)));
  print_windows(reading.windows, frozen, 16);
  const double alone = per_token(sum.frozen, sum.tokens), gain = per_token(sum.frozen - sum.mixed, sum.tokens);
  if (frozen)
    fmt::print("\nwithout memory {:.4f} nats/token\n", alone);
  else
    fmt::print("\nwithout memory {:.4f}, with memory {:.4f} nats/token: {} {:.4f}\n", alone,
               per_token(sum.mixed, sum.tokens), gain >= 0 ? "gain" : "loss of", std::abs(gain));
}

void print_report(const ReadReport& report) {
  for (const TextReading& reading : report.texts) print_text(report, reading);
  if (!report.memory) return;
  if (report.original) {
    const double lost = report.original->mixed - report.original->frozen;
    fmt::print(
        "on the run's validation text ({} tokens) the memory {} the loss by {:.4f}: {:.4f} without, {:.4f} with it\n",
        report.original->tokens, lost > 0 ? "increases" : "improves", std::abs(lost), report.original->frozen,
        report.original->mixed);
    fmt::print("  (its beginning as one stream; 'some eval' reads every document separately, so its loss differs)\n");
  }
  const MemoryAfterReading& memory = *report.memory;
  if (memory.refinement_passes > 0)
    fmt::print("{} refinement pass{} over everything read{}\n", memory.refinement_passes,
               memory.refinement_passes == 1 ? "" : "es",
               report.refinement_seconds > 0 ? fmt::format(", {:.1f} s", report.refinement_seconds) : "");
  fmt::print("{} of {} slots in use{}\n", memory.slots_in_use, memory.settings.slots,
             memory.file.empty() ? "" : fmt::format("; memory: {}", memory.file));
  if (const auto& contexts = memory.contexts)
    fmt::print("contexts of up to {} tokens: {} of {} entries in use{}\n", memory.settings.contexts, contexts->entries,
               memory.settings.context_entries,
               contexts->evicted > 0 ? fmt::format(", {} evicted", contexts->evicted) : "");
  if (report.stopped) fmt::print("stopped and saved; the same command continues from there\n");
}

void run(ReadFlags options) {
  const MemoryOverrides& choices = options.read.choices;
  if (choices.plain_cache &&
      (choices.threshold || choices.values || choices.merge_evicted || choices.refinement_passes))
    bad_input(Code::option_conflict, "{} excludes --threshold, --values, --no-merge-evicted and --refinement-passes",
              "--plain-cache");
  for (const std::string& text : options.read.texts) {
    const bool number = text.find_first_not_of("0123456789.") == std::string::npos;
    if (number && !choices.beta.empty() && !std::filesystem::exists(text))
      bad_input(Code::argument_unexpected, "text '{}' not found; separate values of --beta by commas, as in 20,40",
                text);
  }
  watch_signals();
  const Group& group = join_ranks();
  OpenedRun run = open_run(options.model, group);
  check_same_run(run, {});
  if (options.read.memory.empty() && !options.read.frozen) {
    const std::string why_not = group.root() ? unwritable_reason(run.paths.folder) : "";
    if (!why_not.empty()) bad_input(Code::memory_not_kept, "{}; use --memory FILE", why_not);
    options.read.memory = run.paths.folder + "/memory.safetensors";
  }
  if (is_terminal() && group.root()) {
    options.read.progress = [](const std::string& what, std::int64_t done, std::int64_t total) {
      redraw(done < total ? fmt::format("reading {}: {} of {} tokens", what, done, total) : std::string());
    };
  }
  options.read.stop = [] { return received_signal() != 0; };
  options.read.keep_frames = !options.html.empty();
  ReadMemory kept;
  const ReadReport report = read_texts(run, options.read, &kept);
  if (report.stopped) exit_code = 128 + static_cast<int>(group.all_reduce_max(received_signal()));
  if (!group.root()) return;
  if (!options.html.empty()) write_output_file(options.html, read_page(report, kept, run));
  if (options.json)
    print_json(to_json(report));
  else
    print_report(report);
  if (!options.html.empty() && !options.json) fmt::print("page: {}\n", options.html);
}

}  // namespace

void add_memory_flags(Command& command, MemoryOverrides& choices) {
  command.add_option("--slots", choices.slots, "slots of a new memory (default: 4096)");
  command.add_option("--threshold", choices.threshold,
                     "cosine threshold for merging with a slot of the same token (default: 0.8)");
  command.add_option("--beta", choices.beta, "inverse temperatures, separated by commas; the mixture weights them")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--decay", choices.decay, "decay of slot usage per update (default: 0.001)");
  command.add_option("--switch-rate", choices.switch_rate, "fixed-share switching rate of the mixture (default: 0.01)");
  command.add_option("--values", choices.values, "tokens per slot (default: 8)");
  command.add_flag_callback(
      "--no-merge-evicted", [&choices] { choices.merge_evicted = false; }, "control: no merge-on-evict");
  command.add_option("--partitions", choices.partitions,
                     "partitions of the memory; a query searches the nearest (default: 1)");
  command.add_option("--contexts", choices.contexts,
                     "maximum length of counted contexts in tokens, up to 8; 0 = no contexts (default: 0)");
  command.add_option("--context-entries", choices.context_entries,
                     "maximum number of (context, following token) pairs (default: 131072)");
  command.add_option("--nprobe", choices.nprobe, "partitions searched per query (default: 8)");
  command.add_option("--window", choices.window,
                     "tokens per memory update (default: half of model.seq_len, at most 256)");
  command.add_flag("--documents", choices.documents,
                   "read each document separately, as in training, instead of as one stream");
  auto* counts =
      command.add_option("--counts", choices.counts, "exponent of a slot's count in its weight, 0 to 1 (default: 1)");
  command
      .add_flag_callback(
          "--no-counts", [&choices] { choices.counts = 0.0; }, "control: counts are not used")
      ->excludes(counts);
}

namespace {

void set_up_read(Command& command) {
  auto options = std::make_shared<ReadFlags>();
  add_model_flags(command, options->model);
  command.add_option("TEXT", options->read.texts, "files, folders or builtin:DOMAIN")->required();
  command.add_option("--memory", options->read.memory,
                     "memory file, created if missing (default: RUN/memory.safetensors)");
  add_memory_flags(command, options->read.choices);
  command.add_option("--refinement-passes", options->read.choices.refinement_passes,
                     "k-means refinement passes over everything read so far (default: 0)");
  command.add_flag("--plain-cache", options->read.choices.plain_cache, "control: a FIFO cache without merging");
  command.add_option("--tokens", options->read.tokens, "maximum number of tokens per text, from the first; 0 = all")
      ->capture_default_str();
  command
      .add_option("--max-documents", options->read.max_documents,
                  "maximum number of documents per text, from the first; 0 = all")
      ->capture_default_str();
  command
      .add_option("--original", options->read.original_tokens,
                  "tokens of the run's validation text on which forgetting is measured; 0 = none")
      ->capture_default_str();
  command.add_flag("--frozen", options->read.frozen, "read without a memory, for loss and time");
  command.add_option("--html", options->html, "also write a page with losses and the memory over time");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec read_command() {
  return {
      .name = "read",
      .group = CommandGroup::train_and_use,
      .summary = "read text into a memory; every token is predicted before it is learned",
      .examples = {{"read runs/tiny builtin:recipes", "into runs/tiny/memory.safetensors; the model is frozen"},
                   {"read runs/tiny mine.txt --memory mine.memory --slots 1024 --html read.html", "a separate memory"},
                   {"read runs/tiny mine.txt --memory large.memory --slots 65536 --partitions 64",
                    "a query searches 8 partitions"}},
      .works_on_ranks = true,
      .json = "the report",
      .set_up = set_up_read,
  };
}

}  // namespace some
