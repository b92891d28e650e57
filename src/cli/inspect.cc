#include "study/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/commands.h"

namespace some::cli {
namespace {

struct Options {
  ModelFlags model;
  InspectOptions inspect;
  bool no_pictures = false;
  bool json = false;
};

std::string number(const nlohmann::json& value, int digits) {
  if (!value.is_number()) return "-";
  return value.is_number_integer() ? fmt::format("{}", value.get<std::int64_t>())
                                   : fmt::format("{:.{}f}", value.get<double>(), digits);
}

void print_table(const nlohmann::json& report) {
  const std::size_t columns = table_columns();
  const auto& evaluation = report["evaluation"];
  fmt::print("{} at step {}: {} experts a layer, {} chosen by each token\n", report["run"].get<std::string>(),
             report["step"].get<std::int64_t>(), report["experts"].get<int>(), report["top_k"].get<int>());
  fmt::print("loss {:.4f} nats a token, {:.4f} bits a byte\n{} stories of {}\n\n", evaluation["loss"].get<double>(),
             evaluation["bits_per_byte"].get<double>(), evaluation["stories"].get<std::int64_t>(),
             evaluation["data"].get<std::string>());
  const auto row = [&](const nlohmann::json& layer, const std::string& values) {
    const bool middle = layer["layer"] == report["middle_layer"];
    if (middle) act_on_terminal("\033[1m");
    fmt::print("{:>4}{}  {}\n", layer["layer"].get<int>(), middle ? "*" : " ", values);
    if (middle) act_on_terminal("\033[0m");
  };
  fmt::print("usage  Gini           entropy, bits   in effect       busiest   used in\n");
  fmt::print("layer  count   mass   count   mass    count   mass    x fair    epoch\n");
  for (const auto& layer : report["layers"]) {
    const auto& count = layer["count"];
    const auto& mass = layer["mass"];
    row(layer, fmt::format("{:<7} {:<6} {:<7} {:<7} {:<7} {:<7} {:<9} {}", number(count["gini"], 3),
                           number(mass["gini"], 3), number(count["entropy"], 2), number(mass["entropy"], 2),
                           number(count["effective_experts"], 1), number(mass["effective_experts"], 1),
                           number(count["load_over_fair"], 2), number(layer["experts_used_last_epoch"], 0)));
  }
  fmt::print("\nkeys   length                 moved            births/   gate      sets\n");
  fmt::print("layer  min    mean   max      mean    max      deaths    entropy   seen\n");
  for (const auto& layer : report["layers"]) {
    const nlohmann::json moved = layer.value("key_moved", nlohmann::json::object());
    const auto& norm = layer["key_norm"];
    row(layer,
        fmt::format("{:<6} {:<6} {:<8} {:<7} {:<8} {:<9} {:<9} {}", number(norm["min"], 2), number(norm["mean"], 2),
                    number(norm["max"], 2), number(moved.value("mean", nlohmann::json()), 3),
                    number(moved.value("max", nlohmann::json()), 3),
                    fmt::format("{}/{}", layer["births"].get<std::int64_t>(), layer["deaths"].get<std::int64_t>()),
                    number(layer["gate_entropy"], 3), layer["distinct_sets"].get<std::int64_t>()));
  }
  fmt::print("\nmost frequent sets of experts chosen by one token (share of tokens)\n");
  for (const auto& layer : report["layers"]) {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(5, layer["cliques"].size()); ++i) {
      const auto& clique = layer["cliques"][i];
      std::string members;
      for (const auto& expert : clique["experts"])
        members += fmt::format("{}{}", members.empty() ? "" : " ", expert.get<int>());
      const std::string one = fmt::format("  {{{}}} {:.1f} %", members, 100 * clique["share"].get<double>());
      if (text.size() + one.size() + 6 > columns) break;
      text += one;
    }
    fmt::print("{:>4}{} {}\n", layer["layer"].get<int>(), layer["layer"] == report["middle_layer"] ? "*" : " ", text);
  }
  std::string notes =
      "* the middle layer. Usage is the running mean of the key update, by count of choices and by mass of gates. Gini "
      "0: all alike, 1: one expert has all. ";
  for (const auto& layer : report["layers"]) {
    if (layer["usage_of"] == "data")
      notes += fmt::format("Layer {}: its keys do not learn and count nothing, so usage is that of the stories read. ",
                           layer["layer"].get<int>());
  }
  notes += "In effect: 2^entropy. Gate entropy in nats. ";
  if (report.contains("moved_since_step"))
    notes += fmt::format("Keys moved: distance from step {}. ", report["moved_since_step"].get<std::int64_t>());
  notes += fmt::format("Sets and gate entropy: over {} positions.",
                       report["layers"].empty() ? 0 : report["layers"][0]["sampled_positions"].get<std::int64_t>());
  fmt::print("\n{}", wrapped(notes, columns));
  if (report.contains("folder")) fmt::print("pictures and data: {}/index.html\n", report["folder"].get<std::string>());
}

void run(Options options) {
  OpenedRun run = open_run(options.model);
  if (options.no_pictures)
    options.inspect.out.clear();
  else if (options.inspect.out.empty())
    options.inspect.out = (std::filesystem::path(options.model.run) / "inspect").lexically_normal().string();
  const nlohmann::json report = inspect_run(run, options.inspect);
  if (options.json)
    print_json(report);
  else
    print_table(report);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "how a run has organised itself: a table of every layer, pictures of usage and keys");
  add_model_flags(*command, options->model);
  command->add_option("--layer", options->inspect.layer, "only this layer, counted from 0")->check(CLI::Range(0, 4095));
  command->add_option("--out", options->inspect.out, "folder for pictures and data (default: RUN/inspect)");
  command->add_flag("--no-pictures", options->no_pictures, "only the table");
  command->add_option("--data", options->inspect.data,
                      "file, folder or builtin:DOMAIN to measure choices on (default: the run's validation data)");
  command->add_option("--stories", options->inspect.stories, "only the first N stories; 0: all")->capture_default_str();
  command->add_option("--seed", options->inspect.tsne.seed, "of the t-SNE map")->capture_default_str();
  command->add_option("--perplexity", options->inspect.tsne.perplexity,
                      "of the t-SNE map: about how many neighbours count (default: 30, or a third of the experts)");
  command->add_flag("--json", options->json, "print the report as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace some::cli
