// `some ablate`: what is lost if one expert is never chosen.
#include "analysis/ablate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/model_flags.h"
#include "cli/program.h"
#include "cli/show.h"
#include "cli/signals.h"
#include "cli/terminal.h"

namespace some {
namespace {

struct AblateFlags {
  ModelFlags model;
  AblateOptions ablate;
  int top = 10;
  bool all = false, json = false;
};

// The class whose loss changes most, weighted by its share of the tokens: "noun +0.120".
std::string max_changed_class(const AblateReport& report, const KnockOut& one) {
  std::size_t most = 0;
  const auto weight = [&](std::size_t c) { return std::abs(one.by_class[c]) * report.class_shares[c]; };
  for (std::size_t c = 0; c < one.by_class.size(); ++c) {
    if (weight(c) > weight(most)) most = c;
  }
  return fmt::format("{} {:+.3f}", name_of(static_cast<WordClass>(most)), one.by_class[most]);
}

void print_report(const AblateReport& report, const AblateFlags& flags) {
  fmt::print("{}",
             wrapped(fmt::format("{} at step {}: loss {:.4f} nats/token at {} positions of {} documents ({})",
                                 report.run, report.step, report.loss, report.positions, report.documents, report.data),
                     table_columns()));
  std::vector<const KnockOut*> order;
  double sum = 0;
  std::size_t beyond = 0;
  for (const KnockOut& one : report.knock_outs) {
    order.push_back(&one);
    sum += one.change;
    beyond += one.p <= 0.05;
  }
  if (order.empty()) return;
  fmt::print("{}", wrapped(fmt::format("{} experts, each never chosen in turn: the loss changes by {:+.4f} on average, "
                                       "beyond chance (p <= 0.05 for the largest of all, {} random signs) for {}",
                                       order.size(), sum / static_cast<double>(order.size()), report.shuffles, beyond),
                           table_columns()));
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->change > b->change; });
  const std::size_t shown = flags.all ? order.size() : std::min(order.size(), static_cast<std::size_t>(flags.top));
  fmt::print("layer  expert  load   change              p       most changed        its tokens\n");
  for (std::size_t i = 0; i < shown; ++i) {
    const KnockOut& one = *order[i];
    std::string line = fmt::format("{:>5}  {:>6}  {:>4.2f}  {:+.4f} ± {:.4f}  {:<8.2g}  {}", one.layer, one.expert,
                                   one.load, one.change, one.error, one.p, padded(max_changed_class(report, one), 18));
    for (const std::string& word : one.words) {
      const std::string next = "  " + visible(word);
      if (display_width(line + next) > table_columns()) break;
      line += next;
    }
    fmt::print("{}\n", line);
  }
  if (shown < order.size()) print_line("the {} experts with the largest change; --all shows every one", shown);
}

void run(AblateFlags flags) {
  watch_signals();
  OpenedRun run = open_run(flags.model);
  PreparationProgress progress;
  flags.ablate.progress = [&](int done, int total) { progress.show("knocking out experts", done, total); };
  flags.ablate.stop = [] { return received_signal() != 0; };
  const AblateReport report = ablate(run, flags.ablate);
  if (flags.json)
    print_json(to_json(report));
  else
    print_report(report, flags);
  if (report.stopped) {
    print_line("stopped after {} experts", report.knock_outs.size());
    exit_code = 128 + received_signal();
  }
}

void set_up_ablate(Command& command) {
  auto flags = std::make_shared<AblateFlags>();
  add_model_flags(command, flags->model);
  command.add_option("--layer", flags->ablate.layer, "only this layer, counted from 0")->range(0, 4095);
  command.add_option("--data", flags->ablate.data,
                     "file, folder or builtin:DOMAIN (default: the run's validation data)");
  command.add_option("--max-documents", flags->ablate.max_documents, "only the first N documents; 0 = all")
      ->not_negative()
      ->capture_default_str();
  command.add_option("--shuffles", flags->ablate.shuffles, "random signs of the documents, for chance")
      ->capture_default_str();
  command.add_option("--seed", flags->ablate.seed, "seed of the shuffles")->capture_default_str();
  command.add_option("--top", flags->top, "experts to show")->range(1, 1000000)->capture_default_str();
  command.add_flag("--all", flags->all, "show every expert");
  command.add_json(flags->json);
  command.callback([flags] { run(*flags); });
}

}  // namespace

CommandSpec ablate_command() {
  return {
      .name = "ablate",
      .group = CommandGroup::look_inside,
      .summary = "how the loss changes if an expert is never chosen",
      .examples = {{"ablate runs/tiny --layer 1 --max-documents 5", ""}},
      .json = "the report",
      .set_up = set_up_ablate,
  };
}

}  // namespace some
