#include "study/guilds.h"

#include <fmt/format.h>

#include "base/threads.h"
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

// Broken into lines between words.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent) {
  std::string out, line;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      out += indent + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return out + indent + line + "\n";
}

std::string experts_text(const nlohmann::json& experts) {
  std::string out;
  for (const auto& e : experts) out += fmt::format("{}{}", out.empty() ? "" : " ", e.get<int>());
  return "{" + out + "}";
}

void print_unit(const std::string& name, const nlohmann::json& unit) {
  std::string tokens;
  for (std::size_t i = 0; i < std::min<std::size_t>(5, unit["tokens"].size()); ++i) {
    const auto& token = unit["tokens"][i];
    tokens += fmt::format("  {} {:.0f}% ({:.1f}x)", visible(token["text"].get<std::string>()),
                          100 * token["share"].get<double>(), token["lift"].get<double>());
  }
  fmt::print("    {:<16} {:>7}   {:<12} {:>3.0f}% ({:>3.0f}%)  {}\n", name, unit["count"].get<std::int64_t>(),
             unit["top_class"].get<std::string>(), 100 * unit["top_class_share"].get<double>(),
             100 * unit["top_class_base"].get<double>(), tokens);
}

void print_information(const char* name, const nlohmann::json& test) {
  const auto& info = test["information"];
  const auto& purity = test["purity"];
  fmt::print(
      "    {:<13} {:>6.3f} bits   by chance {:>6.3f} +- {:<7.4f}  z {:>8.1f}  p {:<7.2g}  purity {:>4.1f} % (by chance "
      "{:.1f} %)\n",
      name, info["bits"].get<double>(), info["shuffled_mean"].get<double>(), info["shuffled_deviation"].get<double>(),
      info["z"].get<double>(), info["p"].get<double>(), 100 * purity["share"].get<double>(),
      100 * purity["shuffled_mean"].get<double>());
}

void print_report(const nlohmann::json& report) {
  fmt::print("{} at step {}: {} positions of {} stories ({}), {} shuffles\n", report["run"].get<std::string>(),
             report["step"].get<std::int64_t>(), report["positions"].get<std::int64_t>(),
             report["stories"].get<std::int64_t>(), report["data"].get<std::string>(), report["shuffles"].get<int>());
  std::string shares;
  for (const auto& [name, share] : report["class_shares"].items()) {
    if (share.get<double>() > 0)
      shares += fmt::format("{}{} {:.1f} %", shares.empty() ? "" : ", ", name, 100 * share.get<double>());
  }
  fmt::print("word classes by a built-in list of story words: {}\n", shares);
  fmt::print(
      "p: how often chance does as well, at least 1/(shuffles + 1); for the best expert or set of all it is the chance "
      "of the best of all\n");
  fmt::print(
      "by type: a token counts everywhere as the class it has most often, and chance deals the classes out among "
      "tokens of like frequency; only an expert that\nbrings tokens of one class together is beyond that chance. What "
      "is "
      "said of nouns under each layer is by type, so its shares differ a little from those by position.\n");
  for (const auto& layer : report["layers"]) {
    fmt::print("\nlayer {}{}\n{}", layer["layer"].get<int>(), layer["middle"].get<bool>() ? " (middle)" : "",
               wrapped(layer["summary"].get<std::string>(), 116, "  "));
    fmt::print(
        "  bits that tell the expert (mutual information), and purity: the share of choices that fall on their "
        "expert's commonest token or class\n");
    print_information("token", layer["token"]);
    print_information("next token", layer["next_token"]);
    print_information("word class", layer["word_class"]);
    print_information("same, by type", layer["word_class_by_type"]);
    fmt::print(
        "  busiest experts           fires   commonest class (of all)   commonest tokens: share of its firings (times "
        "its base rate)\n");
    for (const auto& unit : layer["experts"]) print_unit(fmt::format("{}", unit["expert"].get<int>()), unit);
    fmt::print("  most frequent sets, of {} different ones\n", layer["distinct_sets"].get<std::int64_t>());
    for (const auto& unit : layer["sets"]) print_unit(experts_text(unit["experts"]), unit);
    fmt::print(
        "  most given to a word class: share of its firings, of all tokens; p against shuffled positions; 'by type': "
        "the "
        "one most given against classes dealt out among tokens\n");
    for (const auto& one : layer["word_class"]["classes"]) {
      std::string line = fmt::format("    {:<12}", one["class"].get<std::string>());
      for (const char* kind : {"expert", "set"}) {
        if (!one.contains(kind)) continue;
        const auto& unit = one[kind];
        const std::string name = kind == std::string("expert") ? fmt::format("expert {}", unit["expert"].get<int>())
                                                               : "set " + experts_text(unit["experts"]);
        line += fmt::format("  {:<17} {:>3.0f}% of {:>4.1f}%  p {:<6.2g}", name, 100 * unit["share"].get<double>(),
                            100 * unit["base"].get<double>(), unit["p"].get<double>());
        if (const std::string other = std::string(kind) + "_by_type"; one.contains(other)) {
          const auto& best = one[other];
          const std::string who = kind == std::string("expert") ? fmt::format("{}", best["expert"].get<int>())
                                                                : experts_text(best["experts"]);
          line += fmt::format("  by type {:<{}} p {:<6.2g}", who, kind == std::string("expert") ? 4 : 10,
                              best["p"].get<double>());
        }
      }
      fmt::print("{}\n", line);
    }
  }
}

void run(const Options& options) {
  OpenedRun run =
      open_run(options.model.run, {options.model.checkpoint, options.model.device, options.model.precision});
  set_threads(options.model.threads);
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
