#include "analysis/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/model_flags.h"
#include "cli/terminal.h"

namespace some {
namespace {

struct InspectFlags {
  ModelFlags model;
  InspectOptions inspect;
  std::string out;  // default: RUN/inspect
  bool no_pictures = false, svg = false;
  bool json = false;
};

std::string fixed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

void print_table(const InspectReport& report) {
  const std::size_t columns = table_columns();
  fmt::print("{} at step {}: {} experts per layer, {} active per token\n", report.run, report.step, report.experts,
             report.top_k);
  fmt::print("loss {:.4f} nats/token, {:.4f} bits per byte\n{} documents of {}\n\n", report.evaluation.loss,
             report.evaluation.bits_per_byte, report.evaluation.documents, report.data);
  const auto row = [&](const InspectedLayer& layer, const std::string& values) {
    const bool middle = layer.measures.layer == report.middle_layer;
    if (middle) send_control_sequence("\033[1m");
    fmt::print("{:>4}{}  {}\n", layer.measures.layer, middle ? "*" : " ", values);
    if (middle) send_control_sequence("\033[0m");
  };
  fmt::print("load   Gini           entropy, bits   effective       max/mean  used in\n");
  fmt::print("layer  count   mass   count   mass    count   mass    load      epoch\n");
  for (const InspectedLayer& layer : report.layers) {
    const UsageMeasures &count = layer.measures.count, &mass = layer.measures.mass;
    row(layer, fmt::format("{:<7} {:<6} {:<7} {:<7} {:<7} {:<7} {:<9} {}", fixed(count.gini, 3), fixed(mass.gini, 3),
                           fixed(count.entropy, 2), fixed(mass.entropy, 2), fixed(count.effective_experts, 1),
                           fixed(mass.effective_experts, 1), fixed(count.max_over_mean_load, 2),
                           layer.experts_used_last_epoch ? fmt::to_string(*layer.experts_used_last_epoch) : "-"));
  }
  fmt::print("\nkeys   length                 moved            births/   gate      sets\n");
  fmt::print("layer  min    mean   max      mean    max      deaths    entropy   seen\n");
  for (const InspectedLayer& layer : report.layers) {
    const LayerMeasures& m = layer.measures;
    row(layer,
        fmt::format("{:<6} {:<6} {:<8} {:<7} {:<8} {:<9} {:<9} {}", fixed(m.key_norm.least, 2),
                    fixed(m.key_norm.mean, 2), fixed(m.key_norm.most, 2),
                    m.key_moved ? fixed(m.key_moved->mean, 3) : "-", m.key_moved ? fixed(m.key_moved->most, 3) : "-",
                    fmt::format("{:.0f}/{:.0f}", m.births, m.deaths), fixed(m.validation->choices.gate_entropy, 3),
                    m.validation->choices.distinct_sets));
  }
  fmt::print("\nmost frequent sets of active experts (share of tokens)\n");
  for (const InspectedLayer& layer : report.layers) {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(5, layer.measures.validation->choices.cliques.size()); ++i) {
      const std::string one = "  " + clique_text(layer.measures.validation->choices.cliques[i]);
      if (text.size() + one.size() + 6 > columns) break;
      text += one;
    }
    fmt::print("{:>4}{} {}\n", layer.measures.layer, layer.measures.layer == report.middle_layer ? "*" : " ", text);
  }
  std::string notes =
      "* middle layer. Load: the running mean of the key update, by number of assignments (count) and by sum of gates "
      "(mass). Gini: 0 = uniform, near 1 = one expert has all. ";
  for (const InspectedLayer& layer : report.layers) {
    if (layer.usage_of_data)
      notes += fmt::format("Layer {}: its keys are frozen, so the load shown is that of the evaluated documents. ",
                           layer.measures.layer);
  }
  notes += "Effective: 2^entropy. Gate entropy in nats. ";
  if (report.moved_since_step) notes += fmt::format("Keys moved: distance from step {}. ", *report.moved_since_step);
  notes += fmt::format("Sets and gate entropy: over {} positions.",
                       report.layers.empty() ? 0 : report.layers[0].measures.validation->choices.sampled);
  fmt::print("\n{}", wrapped(notes, columns));
}

void run(InspectFlags options) {
  OpenedRun run = open_run(options.model);
  options.inspect.maps = !options.no_pictures;
  if (options.out.empty())
    options.out = (std::filesystem::path(options.model.run) / "inspect").lexically_normal().string();
  const InspectReport report = inspect_run(run, options.inspect);
  nlohmann::json printed = to_json(report);
  if (options.inspect.maps) {
    printed["files"] = write_inspection(report, run, options.out, options.svg);
    printed["folder"] = options.out;
  }
  if (options.json) {
    print_json(printed);
    return;
  }
  print_table(report);
  if (options.inspect.maps) fmt::print("page: {}/index.html\n", options.out);
}

void set_up_inspect(Command& command) {
  auto options = std::make_shared<InspectFlags>();
  add_model_flags(command, options->model);
  command.add_option("--layer", options->inspect.layer, "show only this layer, counted from 0")->range(0, 4095);
  command.add_option("-o,--out", options->out, "output folder of the page and its data (default: RUN/inspect)");
  command.add_flag("--no-pictures", options->no_pictures, "print the table only; write no files");
  command.add_flag("--svg", options->svg, "also write the figures as SVG files");
  command.add_option(
      "--data", options->inspect.data,
      "text for the routing statistics: file, folder or builtin:DOMAIN (default: the run's validation data)");
  command
      .add_option("--max-documents", options->inspect.max_documents,
                  "maximum number of documents, from the first; 0 = all")
      ->capture_default_str();
  command.add_option("--seed", options->inspect.tsne.seed, "seed of the t-SNE map")->capture_default_str();
  command.add_option("--perplexity", options->inspect.tsne.perplexity,
                     "perplexity of the t-SNE map (default: 30, or a third of the experts if fewer)");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec inspect_command() {
  return {
      .name = "inspect",
      .group = CommandGroup::look_inside,
      .summary = "show how a run has organized itself: a table per layer, a page of expert load and keys",
      .examples = {{"inspect runs/tiny", "a table, and figures in runs/tiny/inspect"}},
      .json = "the report",
      .set_up = set_up_inspect,
  };
}

}  // namespace some
