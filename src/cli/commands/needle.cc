#include "analysis/needle/needle.h"

#include <fmt/format.h>

#include "cli/model_flags.h"
#include "cli/program.h"
#include "cli/show.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "core/files/files.h"
#include "core/files/folders.h"

namespace some {
namespace {

struct NeedleFlags {
  ModelFlags model;
  NeedleOptions needle;
  std::string html;
  bool json = false;
};

void print_rows(const std::vector<NeedleRow>& rows, bool after) {
  constexpr std::size_t method_width = 20;
  fmt::print("{:>10}  {}  {:>15}  {:>15}\n", after ? "others" : "tokens", padded("method", method_width), "verbatim",
             "reworded");
  for (const NeedleRow& row : rows) {
    for (const NeedleResult& one : row.results) {
      const bool first = &one == row.results.data();
      fmt::print("{:>10}  {}  {:>6.1f}%{:>8.2f}  {:>6.1f}%{:>8.2f}\n",
                 first ? std::to_string(after ? row.others : row.tokens) : "",
                 padded(name_of(one.method), method_width), 100 * one.verbatim.right, one.verbatim.loss,
                 100 * one.reworded.right, one.reworded.loss);
    }
  }
}

void print_report(const NeedleReport& report) {
  fmt::print("{} at step {}: {} facts in {}, asked verbatim and reworded\n", report.run, report.step, report.facts,
             report.data);
  fmt::print(
      "correct answers in percent, out of {} possible ones (chance: {:.1f}%), and nats per answer; {} questions per "
      "number\n\n",
      report.answers, 100.0 / static_cast<double>(std::max<std::int64_t>(1, report.answers)),
      report.facts * report.repeats);
  print_rows(report.lengths, false);
  if (!report.retention.empty()) {
    fmt::print("\nafter other documents ({}; {} tokens of text)\n", report.other_data, report.lengths.front().tokens);
    print_rows(report.retention, true);
  }
  if (report.stopped) fmt::print("\nstopped; unfinished measurements are omitted\n");
}

void run(NeedleFlags options) {
  watch_signals();
  OpenedRun run = open_run(options.model);
  options.needle.stop = [] { return received_signal() != 0; };
  if (is_terminal())
    options.needle.progress = [](const std::string& what, std::int64_t done, std::int64_t total) {
      redraw(done < total ? fmt::format("{} {} of {}", what, done + 1, total) : std::string());
    };
  const NeedleReport report = measure_needles(run, options.needle);
  if (is_terminal()) redraw("");
  if (report.stopped) exit_code = 128 + received_signal();
  if (!options.html.empty()) write_output_file(options.html, needle_page(report, run));
  if (options.json)
    print_json(to_json(report));
  else
    print_report(report);
  if (!options.html.empty() && !options.json) fmt::print("page: {}\n", options.html);
}

void set_up_needle(Command& command) {
  auto options = std::make_shared<NeedleFlags>();
  NeedleOptions& needle = options->needle;
  add_model_flags(command, options->model);
  command.add_option("--data", needle.data, "text in which the facts are planted (default: the run's validation text)");
  command.add_option("--tokens", needle.tokens, "lengths of the text, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command
      .add_option("--others", needle.others,
                  "documents of the other text read after the shortest text, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command.add_option("--other-data", needle.other_data, "the other text")->capture_default_str();
  command.add_flag_callback(
      "--no-others", [&needle] { needle.others.clear(); }, "skip the test with other texts");
  command.add_option("--facts", needle.facts, "number of facts")->capture_default_str();
  command.add_option("--repeats", needle.repeats, "repeats with other facts and places; results are means")
      ->capture_default_str();
  command.add_option("--seed", needle.seed, "seed of facts and places")->capture_default_str();
  command.add_option("--slots", needle.choices.slots, "slots of the memory (default: 4096)");
  command.add_option("--contexts", needle.choices.contexts, "tokens of the longest context (default: 5)");
  command.add_option("--context-entries", needle.choices.context_entries,
                     "maximum number of (context, following token) pairs (default: 131072)");
  command.add_option("--html", options->html, "also write a page");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec needle_command() {
  return {
      .name = "needle",
      .group = CommandGroup::look_inside,
      .summary = "plant facts in a text and ask for them, with and without a memory",
      .examples = {{"needle runs/tiny --tokens 1000,4000 --others 10 --facts 8",
                    "correct answers of slots, contexts, both, and a counter"},
                   {"needle runs/tiny --tokens 2000 --no-others --html needle.html", ""}},
      .json = "the result",
      .set_up = set_up_needle,
  };
}

}  // namespace some
