// `some routes`: compares the routing of two runs on the same text.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/route_match.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"

namespace some {
namespace {

struct RoutesFlags {
  std::string first, second, device = "auto";
  RouteMatchOptions match;
  int threads = 0;
  bool json = false;
};

void print_match(const RouteMatch& match) {
  fmt::print("{}", wrapped(fmt::format("{} and {}: {} positions of {} documents ({}), {} shuffles", match.first,
                                       match.second, match.positions, match.documents, match.data, match.shuffles),
                           table_columns()));
  fmt::print("layer  agreement  by chance (most)  p        best matched experts\n");
  for (const LayerMatch& one : match.layers) {
    std::string line = fmt::format("{:>5}  {:>8.1f}%  {:>7.1f}% ({:.1f}%)  {:<7.2g}", one.layer, 100 * one.agreement,
                                   100 * one.chance_mean, 100 * one.chance_most, one.p);
    std::vector<ExpertPair> best = one.pairs;
    std::stable_sort(best.begin(), best.end(), [](const auto& a, const auto& b) { return a.shared > b.shared; });
    for (const ExpertPair& pair : best) {
      const std::string next = fmt::format("  {}={} {:.0f}%", pair.first, pair.second, 100 * pair.shared);
      if (display_width(line + next) > table_columns()) break;
      line += next;
    }
    fmt::print("{}\n", line);
  }
  fmt::print("{}",
             wrapped("agreement: fraction of the first run's assignments whose matched expert is chosen by the second "
                     "run at the same position; by chance: the same after shuffling positions and matching again",
                     table_columns()));
}

void run(const RoutesFlags& flags) {
  const auto open = [&](const std::string& folder) {
    ModelFlags model;
    model.run = folder;
    model.device = flags.device;
    model.threads = flags.threads;
    return open_run(model);
  };
  OpenedRun first = open(flags.first), second = open(flags.second);
  const RouteMatch match = match_routes(first, second, flags.match);
  if (flags.json)
    print_json(to_json(match));
  else
    print_match(match);
}

void set_up_routes(Command& command) {
  auto flags = std::make_shared<RoutesFlags>();
  command.add_option("FIRST", flags->first, "run, by name (in runs) or folder")->run_folder()->required();
  command.add_option("SECOND", flags->second, "run with the same tokenizer")->run_folder()->required();
  command.add_option("--data", flags->match.data,
                     "file, folder or builtin:DOMAIN (default: the first run's validation data)");
  command
      .add_option("--max-documents", flags->match.max_documents, "maximum number of documents, from the first; 0 = all")
      ->not_negative()
      ->capture_default_str();
  command.add_option("--shuffles", flags->match.shuffles, "shuffles of the positions that estimate chance")
      ->capture_default_str();
  command.add_option("--seed", flags->match.seed, "seed of the shuffles")->capture_default_str();
  command.add_option("--device", flags->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--threads", flags->threads, "CPU threads; 0 = all available")
      ->range(0, max_threads)
      ->capture_default_str();
  command.add_json(flags->json);
  command.callback([flags] { run(*flags); });
}

}  // namespace

CommandSpec routes_command() {
  return {
      .name = "routes",
      .group = CommandGroup::look_inside,
      .summary = "compare the routing of two runs: matched experts, and their agreement against chance",
      .examples = {{"routes runs/tiny runs/tiny --max-documents 5", "a run with itself"}},
      .json = "the match",
      .set_up = set_up_routes,
  };
}

}  // namespace some
