#include "analysis/adapt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "analysis/adaptation_methods.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "core/files/files.h"
#include "core/files/folders.h"

namespace some {
namespace {

struct AdaptFlags {
  ModelFlags model;
  AdaptOptions adapt;
  std::string svg, html;
  AdaptMethodsOptions ways;
  bool compare = false;
  bool json = false;
};

// Compares every adaptation method in one table.
void compare(const AdaptFlags& options, OpenedRun& run) {
  if (!options.adapt.rules.empty() || options.adapt.frozen || !options.adapt.out.empty() || !options.svg.empty())
    bad_input(Code::option_conflict,
              "{} runs every method of learning; it cannot be combined with --rules, --frozen, --out and --svg",
              "--compare");
  AdaptMethodsOptions ways = options.ways;
  ways.data = options.adapt.data;
  if (options.adapt.window > 0) ways.choices.window = options.adapt.window;
  ways.progress = options.adapt.progress;
  const AdaptMethodsReport report = compare_adapt_methods(run, ways);
  if (!options.html.empty()) write_output_file(options.html, adapt_methods_page(report, run));
  if (options.json) return print_json(to_json(report));
  fmt::print(
      "{} at step {} reads {}: {} tokens in windows of {}; every token is predicted before the keys learn from it\n\n",
      report.run, report.step, report.data, report.tokens, report.window);
  fmt::print("method             loss  bits/byte      gain   original after  forgotten   seconds  times frozen\n");
  for (const AdaptMethod& way : report.ways) {
    fmt::print("{:<14}  {:>7.4f}  {:>9}  {:>+8.4f}   {:>14.4f}  {:>+9.4f}  {:>8.3f}  {:>12.2f}{}\n", name_of(way.kind),
               way.loss, report.bytes > 0 ? fmt::format("{:.3f}", report.bits_per_byte(way.loss)) : "-", way.gain,
               way.original, way.forgotten, way.seconds, way.times_frozen,
               way.rate ? fmt::format("   (step size {}, the best of {})", *way.rate, way.tried.size()) : "");
  }
  if (report.bytes > 0)
    fmt::print("\ncompression programs on the {} bytes of the stream, in bits/byte:\n", report.bytes);
  for (const CompressorSize& size : report.compressors) {
    if (size.bytes)
      fmt::print("{:<14}  {:>7.3f}\n", size.name,
                 8 * static_cast<double>(*size.bytes) / static_cast<double>(report.bytes));
    else
      fmt::print("{:<14}  not installed (Debian: apt-get install {})\n", size.name, size.package);
  }
  if (!options.html.empty()) fmt::print("page: {}\n", options.html);
}

double bits(double nats, double bytes) { return bytes > 0 ? nats / bytes / std::log(2.0) : 0.0; }

// Prints the windows, merged into at most `rows` rows of about equal length.
void print_windows(const AdaptReport& report, std::size_t rows) {
  const std::vector<StreamWindow>& list = report.frozen.windows;
  const std::size_t merged = (list.size() + rows - 1) / rows;
  fmt::print("\n     tokens read   frozen loss  bits/byte{}\n",
             report.active ? "   keys active  bits/byte   gain" : "");
  std::int64_t read = 0;
  for (std::size_t first = 0; first < list.size(); first += merged) {
    StreamReading frozen, active;
    for (std::size_t i = first; i < std::min(list.size(), first + merged); ++i) {
      frozen.windows.push_back(list[i]);
      if (report.active) active.windows.push_back(report.active->windows[i]);
    }
    const StreamWindow alone = frozen.all(), learnt = active.all();
    read += alone.tokens;
    fmt::print("{:>16}   {:>11.4f}  {:>9.4f}", read, alone.loss(), alone.bits_per_byte());
    if (report.active)
      fmt::print("   {:>11.4f}  {:>9.4f}   {:+.4f}", learnt.loss(), learnt.bits_per_byte(),
                 alone.loss() - learnt.loss());
    fmt::print("\n");
  }
}

// Prints losses. The gain from learning is small compared with what the model already knows, and meaningless if the
// model is no better than guessing; the uniform and the frozen loss are therefore printed next to it.
void print_losses(const AdaptReport& report) {
  const double uniform = report.uniform_loss;
  fmt::print("\nloss in nats/token      uniform            frozen control     {}\n",
             report.active ? "learning keys" : "");
  fmt::print("(bits per byte)         guess\n");
  const auto cell = [](double loss, double bits) { return fmt::format("{:.4f} ({:.4f})", loss, bits); };
  const auto row = [&](const char* name, std::int64_t tokens, std::int64_t bytes, const std::string& frozen,
                       const std::string& learnt) {
    fmt::print("{:<22}  {:<17}  {:<17}  {}\n", name,
               cell(uniform, bits(uniform * static_cast<double>(tokens), static_cast<double>(bytes))), frozen, learnt);
  };
  const auto stream = [&](const StreamWindow& all) { return cell(all.loss(), all.bits_per_byte()); };
  const auto text = [&](const char* name, const BeforeAfter& measured) {
    row(name, measured.before.tokens, measured.before.bytes, cell(measured.before.loss, measured.before.bits_per_byte),
        measured.after ? cell(measured.after->loss, measured.after->bits_per_byte) : "");
  };
  const StreamWindow all = report.frozen.all();
  row("the stream", all.tokens, all.bytes, stream(all), report.active ? stream(report.active->all()) : "");
  text("new text, held out", report.held_out);
  text("original text", report.original);
}

void print_report(const AdaptReport& report) {
  const std::string update = report.window_tokens > 0 ? fmt::format("{} tokens", report.window_tokens)
                                                      : fmt::format("{} pieces of at most {} tokens",
                                                                    report.window_pieces, report.longest_piece);
  fmt::print("{} at step {} reads {} ({} tokens), {}\n", report.run, report.from_step, report.data, report.tokens,
             report.active ? fmt::format("one key update by {} per {}", report.rules, update)
                           : fmt::format("keys frozen, in windows of {}", update));
  print_windows(report, 20);
  print_losses(report);
  if (report.held_out.before.loss > report.uniform_loss)
    fmt::print("{}", wrapped("On the new text this model is worse than uniform guessing.", table_columns()));
  if (!report.active) {
    fmt::print("the keys are {} before and after\n", report.keys_identical ? "bit-identical" : "NOT identical");
    return;
  }
  const auto gained = [](double gain) { return gain >= 0 ? "improve the loss by" : "increase the loss by"; };
  fmt::print(
      "\n{} updates. Over the stream the learning keys {} {:.4f} nats/token compared with the frozen control; on the "
      "held-out part of the new text they {} {:.4f},\n",
      report.updates, gained(report.gain_on_stream()), std::abs(report.gain_on_stream()), gained(report.gain_on_new()),
      std::abs(report.gain_on_new()));
  fmt::print("and on the original text they {} {:.4f}.\n", report.forgotten() > 0 ? "forget" : "improve it by",
             std::abs(report.forgotten()));
  for (const AdaptedLayer& layer : report.layers) {
    fmt::print("layer {:>2}: keys moved {:.4f} on average, {:.4f} at most; Gini {:.3f} -> {:.3f}\n", layer.layer,
               layer.moved_mean, layer.moved_most, layer.usage_before.gini, layer.usage_after.gini);
  }
  if (report.out) fmt::print("adapted model: {0} (step {1}); page: {0}/adapt.html\n", *report.out, report.out_step);
}

void run(AdaptFlags options) {
  OpenedRun run = open_run(options.model);
  if (is_terminal()) {
    options.adapt.progress = [](const std::string& what, std::int64_t done, std::int64_t total) {
      redraw(done < total ? fmt::format("{}: {} of {} tokens", what, done, total) : std::string());
    };
  }
  if (options.compare) return compare(options, run);
  if (options.ways.tokens > 0 || !options.ways.memory.empty() || options.ways.choices.slots)
    bad_input(Code::option_needs_another, "{}, --memory and --slots require --compare", "--tokens");
  const AdaptReport report = adapt_run(run, options.adapt);
  if (!options.svg.empty()) write_output_file(options.svg, plot_adaptation(report));
  if (!options.html.empty()) write_output_file(options.html, adapt_page(report, run));
  if (options.json) {
    print_json(to_json(report));
    return;
  }
  print_report(report);
  if (!options.html.empty()) fmt::print("page: {}\n", options.html);
  if (!options.svg.empty()) fmt::print("plot of the losses: {}\n", options.svg);
}

void set_up_adapt(Command& command) {
  auto options = std::make_shared<AdaptFlags>();
  add_model_flags(command, options->model);
  command.add_option("--data", options->adapt.data, "new text: file, folder or builtin:DOMAIN")->required();
  command.add_option("--rules", options->adapt.rules,
                     "rules that move the keys, any of alpha,beta,delta,balance (default: those of training)");
  command
      .add_option("--window", options->adapt.window, "tokens per key update; 0 = batches of the size used in training")
      ->capture_default_str();
  command.add_flag("--frozen", options->adapt.frozen, "run the frozen control only");
  command.add_option("--max-documents", options->adapt.max_documents, "documents of the new text; 0 = all")
      ->capture_default_str();
  command
      .add_option("--max-eval-documents", options->adapt.max_eval_documents,
                  "documents of each text evaluated before and after; 0 = all")
      ->capture_default_str();
  command.add_option("-o,--out", options->adapt.out, "new run folder for the adapted model");
  command.add_flag(
      "--compare", options->compare,
      "compare methods in one table: keys, plain cache, memory, counter, output bias, gradient steps on all "
      "weights; and compression programs");
  command.add_option("--tokens", options->ways.tokens, "with --compare: maximum number of tokens; 0 = all");
  command.add_option("--memory", options->ways.memory,
                     "with --compare: initial memory, left unchanged (default: an empty one)");
  command.add_option("--slots", options->ways.choices.slots, "with --compare: slots of the empty memory");
  command.add_option("--html", options->html, "also write the report as an HTML page (--out writes OUT/adapt.html)");
  command.add_option("--svg", options->svg, "also write the losses over the stream as an SVG plot");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec adapt_command() {
  return {
      .name = "adapt",
      .group = CommandGroup::train_and_use,
      .summary = "let the keys of a trained model learn from a stream of text; compares with a frozen control",
      .examples = {{"adapt runs/tiny --data builtin:recipes", "compares with frozen keys"},
                   {"adapt runs/tiny --data mine.txt --rules alpha --out runs/adapted", "keep the adapted model"},
                   {"adapt runs/tiny --data mine.txt --compare", "all methods in one table"}},
      .json = "the report",
      .set_up = set_up_adapt,
  };
}

}  // namespace some
