#include "analysis/guilds.h"

#include <fmt/format.h>

#include <map>

#include "cli/model_flags.h"
#include "cli/show.h"
#include "cli/terminal.h"
#include "core/files/files.h"
#include "core/files/folders.h"

namespace some {
namespace {

struct GuildsFlags {
  ModelFlags model;
  GuildOptions guilds;
  std::string html;
  bool all = false, json = false;
};

// Prints one expert or set; wider terminals show more of its most frequent tokens.
void print_unit(const std::string& name, const GuildUnit& unit) {
  std::string line = fmt::format("  {:<13} {:>6} {:<11} {:>3.0f}% ({:.0f}%)", name, unit.count, name_of(unit.top_class),
                                 100 * unit.top_class_share, 100 * unit.top_class_base);
  for (const TokenShare& token : unit.tokens) {
    const std::string one = fmt::format("  {} {:.0f}% ({:.1f}x)", visible(token.text), 100 * token.share, token.lift());
    if (display_width(line + one) > table_columns()) break;
    line += one;
  }
  fmt::print("{}\n", line);
}

void print_information(const char* name, const LabelTest& test) {
  const ChanceTest& info = test.information;
  fmt::print("  {:<13} {:>6.3f} {:>7.3f} ± {:<6.4f} {:>7.1f} {:>8.2g} {:>6.1f} % {:>7.1f} %\n", name, info.value,
             info.mean, info.deviation, info.z, info.p, 100 * test.purity.value, 100 * test.purity.mean);
}

// Prints the expert and the expert set with the highest affinity to a word class, by position and by type.
void print_class(const ClassGuilds& one) {
  std::string name = fmt::format("{:<11} {:>4.1f}%", name_of(one.word_class), 100 * one.base);
  const auto print = [&](const std::optional<UnitAffinity>& unit, const std::optional<UnitAffinity>& by_type,
                         bool set) {
    if (!unit) return;
    const auto who = [&](const UnitAffinity& given) {
      return set ? set_text(given.experts) : fmt::format("expert {}", given.experts.at(0));
    };
    std::string line = fmt::format("  {:<17} {:<13} {:>3.0f}%  p {:<6.2g}", name, who(*unit),
                                   100 * unit->affinity.share, unit->affinity.p);
    if (by_type) line += fmt::format(" by type {:<13} p {:.2g}", who(*by_type), by_type->affinity.p);
    fmt::print("{}\n", line);
    name.clear();
  };
  print(one.expert, one.expert_by_type, false);
  print(one.set, one.set_by_type, true);
}

void print_findings(const GuildReport& report) {
  fmt::print("{}", wrapped(fmt::format("{} at step {}: {} positions of {} documents ({}), {} shuffles", report.run,
                                       report.step, report.positions, report.documents, report.data, report.shuffles),
                           table_columns()));
  for (const std::string& line : guild_findings(report)) fmt::print("{}", wrapped("- " + line, table_columns()));
}

void print_details(const GuildReport& report) {
  const std::size_t columns = table_columns();
  const auto say_wrapped = [&](const std::string& text, const std::string& indent = "") {
    fmt::print("{}", wrapped(text, columns, indent));
  };
  fmt::print("\n");
  // Sorted by name, as in the JSON output.
  std::map<std::string, double> shares;
  for (std::size_t c = 0; c < report.class_shares.size(); ++c)
    shares[name_of(static_cast<WordClass>(c))] = report.class_shares[c];
  std::string told;
  for (const auto& [name, share] : shares) {
    if (share > 0) told += fmt::format("{}{} {:.1f} %", told.empty() ? "" : ", ", name, 100 * share);
  }
  say_wrapped("word classes by a built-in list of story words: " + told);
  say_wrapped(
      "p: share of shuffles with an equal or better result, at least 1/(shuffles + 1); for the best expert or set, "
      "compared "
      "with the best of each shuffle");
  say_wrapped(
      "by type: each token has its most frequent class everywhere, and shuffling exchanges classes among tokens of "
      "similar "
      "frequency; only an expert that collects tokens of one class exceeds that. Statements about nouns are by type, "
      "so "
      "their shares differ a little from those by position.");
  for (const GuildLayer& layer : report.layers) {
    fmt::print("\nlayer {}{}\n", layer.layer, layer.middle ? " (middle)" : "");
    say_wrapped(layer.summary, "  ");
    say_wrapped(
        "mutual information with the expert in bits, and purity: the share of assignments to an expert's most frequent "
        "token or class",
        "  ");
    fmt::print("                  bits   by chance             z        p   purity  by chance\n");
    print_information("token", layer.token);
    print_information("next token", layer.next_token);
    print_information("word class", layer.word_class);
    print_information("the same by type", layer.word_class_by_type);
    fmt::print("  busiest        count class, share (of all) tokens: share (times base rate)\n");
    for (const GuildUnit& unit : layer.experts) print_unit(fmt::to_string(unit.experts.at(0)), unit);
    fmt::print("  most frequent of {} different sets\n", layer.distinct_sets);
    for (const GuildUnit& unit : layer.sets) print_unit(set_text(unit.experts), unit);
    say_wrapped(
        "strongest expert or set of a word class (with the class's share of all tokens): share of its assignments; p "
        "against "
        "shuffled positions; 'by type': against classes exchanged among tokens",
        "  ");
    for (const ClassGuilds& one : layer.classes) print_class(one);
  }
}

void run(const GuildsFlags& options) {
  OpenedRun run = open_run(options.model);
  const GuildReport report = analyze_guilds(run, options.guilds);
  if (!options.html.empty()) write_output_file(options.html, guilds_page(report, run));
  if (options.json) {
    print_json(to_json(report));
    return;
  }
  print_findings(report);
  if (options.all)
    print_details(report);
  else
    print_line("every layer's tests, experts and sets: --all{}",
               options.html.empty() ? ", or as a page: --html FILE" : "");
  if (!options.html.empty()) fmt::print("\npage: {}\n", options.html);
}

void set_up_guilds(Command& command) {
  auto options = std::make_shared<GuildsFlags>();
  add_model_flags(command, options->model);
  command.add_option("--layer", options->guilds.layer, "show only this layer, counted from 0")->range(0, 4095);
  command.add_option("--data", options->guilds.data,
                     "file, folder or builtin:DOMAIN (default: the run's validation data)");
  command
      .add_option("--max-documents", options->guilds.max_documents,
                  "maximum number of documents, from the first; 0 = all")
      ->capture_default_str();
  command.add_option("--shuffles", options->guilds.shuffles, "shuffles that estimate chance")->capture_default_str();
  command.add_option("--seed", options->guilds.seed, "seed of the shuffles")->capture_default_str();
  command
      .add_option("--min-count", options->guilds.min_count, "minimum number of assignments of a tested expert or set")
      ->capture_default_str();
  command.add_option("--top", options->guilds.shown, "experts and sets shown per layer")
      ->capture_default_str()
      ->range(1, 1000000);
  command.add_flag("--all", options->all, "show the tests, experts and sets of every layer");
  command.add_option("--html", options->html, "also write the report as a page");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec guilds_command() {
  return {
      .name = "guilds",
      .group = CommandGroup::look_inside,
      .summary = "test which tokens and word classes experts specialize in, against chance",
      .examples = {{"guilds runs/tiny --layer 1", ""}},
      .json = "the report",
      .set_up = set_up_guilds,
  };
}

}  // namespace some
