#include "study/guilds.h"

#include <fmt/format.h>

#include "cli/commands.h"

namespace some::cli {
namespace {

struct Options {
  ModelFlags model;
  GuildOptions guilds;
  bool json = false;
};

std::string visible(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += c == ' ' ? "·" : c == '\n' ? "↵" : std::string(1, c);
  return out;
}

std::string experts_text(const nlohmann::json& experts) {
  std::string out;
  for (const auto& e : experts) out += fmt::format("{}{}", out.empty() ? "" : " ", e.get<int>());
  return "{" + out + "}";
}

// Wider terminals show more of the commonest tokens.
void print_unit(const std::string& name, const nlohmann::json& unit) {
  std::string line = fmt::format("  {:<13} {:>6} {:<11} {:>3.0f}% ({:.0f}%)", name, unit["count"].get<std::int64_t>(),
                                 unit["top_class"].get<std::string>(), 100 * unit["top_class_share"].get<double>(),
                                 100 * unit["top_class_base"].get<double>());
  for (const auto& token : unit["tokens"]) {
    const std::string one = fmt::format("  {} {:.0f}% ({:.1f}x)", visible(token["text"].get<std::string>()),
                                        100 * token["share"].get<double>(), token["lift"].get<double>());
    if (display_width(line + one) > table_columns()) break;
    line += one;
  }
  fmt::print("{}\n", line);
}

void print_information(const char* name, const nlohmann::json& test) {
  const auto& info = test["information"];
  const auto& purity = test["purity"];
  fmt::print("  {:<13} {:>6.3f} {:>7.3f} ± {:<6.4f} {:>7.1f} {:>8.2g} {:>6.1f} % {:>7.1f} %\n", name,
             info["bits"].get<double>(), info["shuffled_mean"].get<double>(), info["shuffled_deviation"].get<double>(),
             info["z"].get<double>(), info["p"].get<double>(), 100 * purity["share"].get<double>(),
             100 * purity["shuffled_mean"].get<double>());
}

// Of a word class the expert, and the set of experts, most given to it, by position and by type.
void print_class(const nlohmann::json& one) {
  std::string name = fmt::format("{:<11} {:>4.1f}%", one["class"].get<std::string>(), 100 * one["base"].get<double>());
  for (const std::string kind : {"expert", "set"}) {
    if (!one.contains(kind)) continue;
    const auto who = [&](const nlohmann::json& unit) {
      return kind == "expert" ? fmt::format("expert {}", unit["expert"].get<int>()) : experts_text(unit["experts"]);
    };
    const auto& unit = one[kind];
    std::string line = fmt::format("  {:<17} {:<13} {:>3.0f}%  p {:<6.2g}", name, who(unit),
                                   100 * unit["share"].get<double>(), unit["p"].get<double>());
    if (one.contains(kind + "_by_type")) {
      const auto& best = one[kind + "_by_type"];
      line += fmt::format(" by type {:<13} p {:.2g}", who(best), best["p"].get<double>());
    }
    fmt::print("{}\n", line);
    name.clear();
  }
}

void print_report(const nlohmann::json& report) {
  const std::size_t columns = table_columns();
  const auto say_wrapped = [&](const std::string& text, const std::string& indent = "") {
    fmt::print("{}", wrapped(text, columns, indent));
  };
  say_wrapped(fmt::format("{} at step {}: {} positions of {} stories ({}), {} shuffles",
                          report["run"].get<std::string>(), report["step"].get<std::int64_t>(),
                          report["positions"].get<std::int64_t>(), report["stories"].get<std::int64_t>(),
                          report["data"].get<std::string>(), report["shuffles"].get<int>()));
  std::string shares;
  for (const auto& [name, share] : report["class_shares"].items()) {
    if (share.get<double>() > 0)
      shares += fmt::format("{}{} {:.1f} %", shares.empty() ? "" : ", ", name, 100 * share.get<double>());
  }
  say_wrapped("word classes by a built-in list of story words: " + shares);
  say_wrapped(
      "p: how often chance does as well, at least 1/(shuffles + 1); for the best expert or set of all it is the chance "
      "of the best of all");
  say_wrapped(
      "by type: a token counts everywhere as the class it has most often, and chance deals the classes out among "
      "tokens of like frequency; only an expert that brings tokens of one class together is beyond that chance. What "
      "is said of nouns under each layer is by type, so its shares differ a little from those by position.");
  for (const auto& layer : report["layers"]) {
    fmt::print("\nlayer {}{}\n", layer["layer"].get<int>(), layer["middle"].get<bool>() ? " (middle)" : "");
    say_wrapped(layer["summary"].get<std::string>(), "  ");
    say_wrapped(
        "bits that tell the expert (mutual information), and purity: the share of choices that fall on their expert's "
        "commonest token or class",
        "  ");
    fmt::print("                  bits   by chance             z        p   purity  by chance\n");
    print_information("token", layer["token"]);
    print_information("next token", layer["next_token"]);
    print_information("word class", layer["word_class"]);
    print_information("same, by type", layer["word_class_by_type"]);
    fmt::print("  busiest        fires class, share (of all) tokens: share (times base rate)\n");
    for (const auto& unit : layer["experts"]) print_unit(fmt::format("{}", unit["expert"].get<int>()), unit);
    fmt::print("  most frequent sets, of {} different ones\n", layer["distinct_sets"].get<std::int64_t>());
    for (const auto& unit : layer["sets"]) print_unit(experts_text(unit["experts"]), unit);
    say_wrapped(
        "most given to a word class (with its share of all tokens): share of their firings; p against shuffled "
        "positions; 'by type': the one most given, against classes dealt out among tokens",
        "  ");
    for (const auto& one : layer["word_class"]["classes"]) print_class(one);
  }
}

void run(const Options& options) {
  OpenedRun run = open_run(options.model);
  const nlohmann::json report = study_guilds(run, options.guilds);
  if (options.json)
    print_json(report);
  else
    print_report(report);
}

}  // namespace

void add_guilds(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "guilds", "which experts fire for which tokens and word classes, and whether that is more than chance");
  add_model_flags(*command, options->model);
  command->add_option("--layer", options->guilds.layer, "only this layer, counted from 0")->check(CLI::Range(0, 4095));
  command->add_option("--data", options->guilds.data,
                      "file, folder or builtin:DOMAIN (default: the run's validation data)");
  command->add_option("--stories", options->guilds.stories, "only the first N stories; 0: all")->capture_default_str();
  command
      ->add_option("--shuffles", options->guilds.shuffles,
                   "how often the tokens are shuffled to learn what chance gives")
      ->capture_default_str();
  command->add_option("--seed", options->guilds.seed, "of the shuffles")->capture_default_str();
  command
      ->add_option("--least-count", options->guilds.least_count,
                   "experts and sets that fire more rarely are not judged")
      ->capture_default_str();
  command->add_option("--top", options->guilds.shown, "experts and sets to show in each layer")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_flag("--json", options->json, "print the report as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace some::cli
