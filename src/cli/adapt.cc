#include "study/adapt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/files.h"
#include "base/folders.h"
#include "cli/commands.h"
#include "study/ways.h"

namespace some::cli {
namespace {

struct AdaptFlags {
  ModelFlags model;
  AdaptOptions adapt;
  std::string svg, html;
  WaysOptions ways;
  bool compare = false;
  bool json = false;
};

// Every way of learning in use, in one table.
void compare(const AdaptFlags& options, OpenedRun& run) {
  if (!options.adapt.rules.empty() || options.adapt.frozen || !options.adapt.out.empty() || !options.svg.empty())
    bad_input("--compare goes through every way of learning: --rules, --frozen, --out and --svg do not go with it");
  WaysOptions ways = options.ways;
  ways.data = options.adapt.data;
  if (options.adapt.window > 0) ways.choices.window = options.adapt.window;
  ways.progress = options.adapt.progress;
  const nlohmann::json report = compare_ways(run, ways);
  if (!options.html.empty()) write_file_atomic(options.html, ways_page(report, run));
  if (options.json) return print_json(report);
  fmt::print(
      "{} at step {} reads {}: {} tokens in windows of {}; every token is predicted before it is learnt from\n\n",
      report["run"].get<std::string>(), report["step"].get<std::int64_t>(), report["data"].get<std::string>(),
      report["tokens"].get<std::int64_t>(), report["window"].get<std::int64_t>());
  fmt::print("what learns        loss      gain   original after  forgotten   seconds  times frozen\n");
  for (const auto& way : report["ways"]) {
    fmt::print("{:<14}  {:>7.4f}  {:>+8.4f}   {:>14.4f}  {:>+9.4f}  {:>8.2f}  {:>12.2f}{}\n",
               way["name"].get<std::string>(), way["loss"].get<double>(), way["gain"].get<double>(),
               way["original"].get<double>(), way["forgotten"].get<double>(), way["seconds"].get<double>(),
               way["times_frozen"].get<double>(),
               way.contains("rate")
                   ? fmt::format("   (rate {}, the best of {})", way["rate"].get<double>(), way["tried"].size())
                   : "");
  }
  if (!options.html.empty()) fmt::print("page: {}\n", options.html);
}

// Windows merged into at most `rows` of about equal length.
void print_windows(const nlohmann::json& frozen, const nlohmann::json& active, std::size_t rows) {
  const auto& list = frozen["windows"];
  const std::size_t merged = (list.size() + rows - 1) / rows;
  fmt::print("\n     tokens read   frozen loss  bits/byte{}\n",
             active.is_null() ? "" : "   keys active  bits/byte   gain");
  std::int64_t read = 0;
  for (std::size_t first = 0; first < list.size(); first += merged) {
    double nll[2] = {0, 0};
    std::int64_t tokens = 0, bytes = 0;
    for (std::size_t i = first; i < std::min(list.size(), first + merged); ++i) {
      const auto count = list[i]["tokens"].get<std::int64_t>();
      tokens += count;
      bytes += list[i]["bytes"].get<std::int64_t>();
      nll[0] += list[i]["loss"].get<double>() * static_cast<double>(count);
      if (!active.is_null()) nll[1] += active["windows"][i]["loss"].get<double>() * static_cast<double>(count);
    }
    const auto loss = [&](int which) { return tokens > 0 ? nll[which] / static_cast<double>(tokens) : 0.0; };
    const auto bits = [&](int which) {
      return bytes > 0 ? nll[which] / static_cast<double>(bytes) / 0.6931471805599453 : 0.0;
    };
    read += tokens;
    fmt::print("{:>16}   {:>11.4f}  {:>9.4f}", read, loss(0), bits(0));
    if (!active.is_null()) fmt::print("   {:>11.4f}  {:>9.4f}   {:+.4f}", loss(1), bits(1), loss(0) - loss(1));
    fmt::print("\n");
  }
}

void print_report(const nlohmann::json& report) {
  const nlohmann::json active = report.value("active", nlohmann::json());
  const std::string update = report["window_tokens"].get<std::int64_t>() > 0
                                 ? fmt::format("{} tokens", report["window_tokens"].get<std::int64_t>())
                                 : fmt::format("{} pieces of at most {} tokens", report["window_pieces"].get<int>(),
                                               report["stream"]["longest_piece"].get<int>());
  fmt::print("{} at step {} reads {} ({} tokens), {}\n", report["run"].get<std::string>(),
             report["from_step"].get<std::int64_t>(), report["data"].get<std::string>(),
             report["stream"]["tokens"].get<std::int64_t>(),
             active.is_null() ? fmt::format("keys frozen, in windows of {}", update)
                              : fmt::format("an update of its keys by {} after every {}",
                                            report["rules"].get<std::string>(), update));
  print_windows(report["frozen"], active, 20);
  // What the keys learnt is little beside what the model knows already, and nothing where it knows nothing: both are
  // shown beside it.
  const double uniform = report["uniform"]["loss"].get<double>();
  fmt::print("\nloss in nats a token    uniform            frozen twin        {}\n",
             active.is_null() ? "" : "keys that learnt");
  fmt::print("(bits a byte)           guessing\n");
  const auto row = [&](const char* name, const nlohmann::json& frozen, const nlohmann::json& learnt) {
    const auto cell = [](double loss, double bits) { return fmt::format("{:.4f} ({:.4f})", loss, bits); };
    const auto measured = [&](const nlohmann::json& m) {
      return m.is_null() ? std::string() : cell(m["loss"].get<double>(), m["bits_per_byte"].get<double>());
    };
    const double bytes = frozen["bytes"].get<double>();
    fmt::print("{:<22}  {:<17}  {:<17}  {}\n", name,
               cell(uniform, bytes > 0 ? uniform * frozen["tokens"].get<double>() / bytes / 0.6931471805599453 : 0.0),
               measured(frozen), measured(learnt));
  };
  const auto after = [&](const char* text) { return report[text].value("after", nlohmann::json()); };
  row("the stream", report["frozen"], active);
  row("new text, held out", report["new"]["before"], after("new"));
  row("original text", report["original"]["before"], after("original"));
  if (report["new"]["before"]["loss"].get<double>() > uniform)
    fmt::print(
        "{}", wrapped("The new text is beyond this model: it predicts it worse than guessing would.", table_columns()));
  if (active.is_null()) {
    fmt::print("the keys are {} before and after\n",
               report["frozen"]["keys_identical"].get<bool>() ? "the same to the bit" : "NOT the same");
    return;
  }
  fmt::print(
      "\n{} updates. Over the stream the learning keys {} {:.4f} nats a token against the frozen twin; on the held-out "
      "part of the new text they {} {:.4f},\n",
      report["updates"].get<std::int64_t>(), report["gain_on_stream"].get<double>() >= 0 ? "gained" : "lost",
      std::abs(report["gain_on_stream"].get<double>()), report["gain_on_new"].get<double>() >= 0 ? "gained" : "lost",
      std::abs(report["gain_on_new"].get<double>()));
  fmt::print("and on the original text they {} {:.4f}.\n", report["forgotten"].get<double>() > 0 ? "forgot" : "gained",
             std::abs(report["forgotten"].get<double>()));
  for (const auto& layer : report["layers"]) {
    fmt::print("layer {:>2}: keys moved {:.4f} on average, {:.4f} at most; Gini {:.3f} -> {:.3f}\n",
               layer["layer"].get<int>(), layer["key_moved"]["mean"].get<double>(),
               layer["key_moved"]["max"].get<double>(), layer["usage_before"]["gini"].get<double>(),
               layer["usage_after"]["gini"].get<double>());
  }
  if (report.contains("out"))
    fmt::print("adapted model: {0} (step {1}); page: {0}/adapt.html\n", report["out"].get<std::string>(),
               report["out_step"].get<std::int64_t>());
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
    bad_input("--tokens, --memory and --slots go with --compare");
  const nlohmann::json report = adapt_run(run, options.adapt);
  if (!options.svg.empty()) write_output_file(options.svg, adapt_picture(report));
  if (!options.html.empty()) write_output_file(options.html, adapt_page(report, run));
  if (options.json) {
    print_json(report);
    return;
  }
  print_report(report);
  if (!options.html.empty()) fmt::print("page: {}\n", options.html);
  if (!options.svg.empty()) fmt::print("picture of the losses: {}\n", options.svg);
}

}  // namespace

void add_adapt(Command& app) {
  auto options = std::make_shared<AdaptFlags>();
  Command* command = app.add_subcommand(
      "adapt", "let a trained model's keys go on learning from a stream of text, beside a frozen twin");
  add_model_flags(*command, options->model);
  command->add_option("--data", options->adapt.data, "the new text: file, folder or builtin:DOMAIN")->required();
  command->add_option(
      "--rules", options->adapt.rules,
      "which rules move the keys: alpha,beta,delta,balance in any choice (default: as the run was trained)");
  command
      ->add_option("--window", options->adapt.window,
                   "tokens from one update to the next; 0: batches as large as in training")
      ->capture_default_str();
  command->add_flag("--frozen", options->adapt.frozen, "only the twin: keys stay as they are");
  command->add_option("--stories", options->adapt.stories, "only the first N stories of the new text; 0: all")
      ->capture_default_str();
  command
      ->add_option("--eval-stories", options->adapt.eval_stories,
                   "stories of each text to measure before and after; 0: all")
      ->capture_default_str();
  command->add_option("--out", options->adapt.out, "save the adapted model as a new run folder");
  command->add_flag("--compare", options->compare,
                    "every way of learning in one table: keys, a memory, an output bias, gradient steps on everything");
  command->add_option("--tokens", options->ways.tokens, "with --compare: only the first N tokens; 0: all");
  command->add_option("--memory", options->ways.memory,
                      "with --compare: a memory to begin from (it is not changed; default: an empty one)");
  command->add_option("--slots", options->ways.choices.slots, "with --compare: slots of an empty memory");
  command->add_option("--html", options->html, "also write the report as a page (--out writes OUT/adapt.html)");
  command->add_option("--svg", options->svg, "also draw the losses over the stream into this file");
  command->add_flag("--json", options->json, "print the report as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace some::cli
