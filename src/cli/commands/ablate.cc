// `some ablate`: measures the contribution of experts, blocks, key movement and memory slots.
#include "analysis/ablate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/knock_outs/ablate_rules.h"
#include "analysis/knock_outs/ablate_slots.h"
#include "cli/model_flags.h"
#include "cli/program.h"
#include "cli/show.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "train/remember.h"

namespace some {
namespace {

struct AblateFlags {
  ModelFlags model;
  AblateOptions ablate;
  std::int64_t learn_documents = AblateRulesOptions().learn_documents;
  std::string unit = "expert", memory;
  int draws = 9;
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

void print_layers(const AblateReport& report) {
  const bool movement = report.knock_outs[0].unit != "layer";
  fmt::print("{}",
             wrapped(movement ? fmt::format("routed by the initial keys, and by keys moved equally far in random "
                                            "directions; p: chance for the largest of all, {} random signs",
                                            report.shuffles)
                              : fmt::format("without the feed-forward block of a layer; p: chance for the largest of "
                                            "all, {} random signs",
                                            report.shuffles),
                     table_columns()));
  fmt::print("layer  {}change              p         most changed\n", movement ? "keys             moved  " : "");
  for (const KnockOut& one : report.knock_outs) {
    std::string line = fmt::format("{:>5}  ", one.layer);
    if (movement)
      line +=
          fmt::format("{:<15}  {:>5.3f}  ", one.unit == "movement" ? "as at the start" : "moved at random", one.moved);
    fmt::print("{}{:+.4f} ± {:.4f}  {:<8.2g}  {}\n", line, one.change, one.error, one.p,
               max_changed_class(report, one));
  }
}

void print_report(const AblateReport& report, const AblateFlags& flags) {
  fmt::print("{}",
             wrapped(fmt::format("{} at step {}: loss {:.4f} nats/token at {} positions of {} documents ({})",
                                 report.run, report.step, report.loss, report.positions, report.documents, report.data),
                     table_columns()));
  if (report.knock_outs.empty()) return;
  if (flags.ablate.unit != AblateUnit::expert) return print_layers(report);
  std::vector<const KnockOut*> order;
  double sum = 0;
  std::size_t beyond = 0;
  for (const KnockOut& one : report.knock_outs) {
    order.push_back(&one);
    sum += one.change;
    beyond += one.p <= 0.05;
  }
  fmt::print("{}", wrapped(fmt::format("{} experts, disabled one at a time: the loss changes by {:+.4f} on average, "
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
  if (shown < order.size()) print_line("the {} experts with the largest change; --all shows all", shown);
}

void print_slots(const AblateSlotsReport& report) {
  fmt::print("{}", wrapped(fmt::format("{} at step {}: loss {:.4f} nats/token with a memory of {} slots that does not "
                                       "learn, {:.4f} without its slots, over {} documents ({})",
                                       report.run, report.step, report.loss, report.slots, report.without_slots,
                                       report.documents, report.data),
                           table_columns()));
  fmt::print("{}", wrapped(fmt::format("change of the loss without the slots of one word class, and without the same "
                                       "number of random slots ({} draws)",
                                       report.draws),
                           table_columns()));
  fmt::print("class          slots  change   random slots        p\n");
  for (const SlotKnockOut& one : report.knock_outs)
    fmt::print("{}  {:>6}  {:+.4f}  {:+.4f} ± {:.4f}  {:.2g}\n", padded(name_of(one.word_class), 12), one.slots,
               one.change, one.control, one.control_deviation, one.p);
}

void run_slots(const AblateFlags& flags) {
  OpenedRun run = open_run(flags.model);
  Memory memory = open_memory(run, flags.memory);
  PreparationProgress progress;
  AblateSlotsOptions options;
  options.data = flags.ablate.data;
  options.max_documents = flags.ablate.max_documents;
  options.draws = flags.draws;
  options.seed = flags.ablate.seed;
  options.progress = [&](int done, int total) { progress.show("knocking out", done, total); };
  options.stop = [] { return received_signal() != 0; };
  const AblateSlotsReport report = ablate_slots(run, memory, options);
  if (flags.json)
    print_json(to_json(report));
  else
    print_slots(report);
  if (!report.stopped) return;
  print_line("stopped after {} of them", report.knock_outs.size());
  exit_code = 128 + received_signal();
}

void print_rules(const AblateRulesReport& report) {
  fmt::print(
      "{}",
      wrapped(fmt::format("{} at step {}: the initial keys learned again from {} training "
                          "documents ({} updates by {}, which moved them by {:.3f} on average): loss {:.4f} "
                          "nats/token at {} positions of {} documents ({}); {:.4f} with the run's own keys",
                          report.run, report.step, report.learn_documents, report.updates, report.rules, report.moved,
                          report.loss, report.positions, report.documents, report.data, report.loss_trained),
              table_columns()));
  if (report.knock_outs.empty()) return;
  fmt::print("without   moved  change              p (chance for the largest of all, {} random signs)\n",
             report.shuffles);
  for (const RuleKnockOut& one : report.knock_outs)
    fmt::print("{}  {:>5.3f}  {:+.4f} ± {:.4f}  {:.2g}\n", padded(one.without == "all" ? "any rule" : one.without, 8),
               one.moved, one.change, one.error, one.p);
}

void run_rules(const AblateFlags& flags) {
  if (flags.ablate.layer)
    bad_input(Code::option_conflict, "{} cannot be combined with --unit rule: rules move the keys of all layers",
              "--layer");
  OpenedRun run = open_run(flags.model);
  PreparationProgress progress;
  AblateRulesOptions options;
  options.learn_documents = flags.learn_documents;
  options.data = flags.ablate.data;
  options.max_documents = flags.ablate.max_documents;
  options.shuffles = flags.ablate.shuffles;
  options.seed = flags.ablate.seed;
  options.progress = [&](int done, int total) { progress.show("knocking out", done, total); };
  options.stop = [] { return received_signal() != 0; };
  const AblateRulesReport report = ablate_rules(run, options);
  if (flags.json)
    print_json(to_json(report));
  else
    print_rules(report);
  if (!report.stopped) return;
  print_line("stopped after {} of them", report.knock_outs.size());
  exit_code = 128 + received_signal();
}

void run(AblateFlags flags) {
  const std::vector<std::string> units = ablate_units();
  const auto unit = std::find(units.begin(), units.end(), flags.unit);
  if (unit == units.end() && flags.unit != "rule")
    bad_input(Code::option_invalid, "{} {}: must be one of {}, rule", "--unit", flags.unit, fmt::join(units, ", "));
  watch_signals();
  if (!flags.memory.empty()) return run_slots(flags);
  if (flags.unit == "rule") return run_rules(flags);
  flags.ablate.unit = static_cast<AblateUnit>(unit - units.begin());
  OpenedRun run = open_run(flags.model);
  PreparationProgress progress;
  flags.ablate.progress = [&](int done, int total) { progress.show("knocking out", done, total); };
  flags.ablate.stop = [] { return received_signal() != 0; };
  const AblateReport report = ablate(run, flags.ablate);
  if (flags.json)
    print_json(to_json(report));
  else
    print_report(report, flags);
  if (report.stopped) {
    print_line("stopped after {} of them", report.knock_outs.size());
    exit_code = 128 + received_signal();
  }
}

void set_up_ablate(Command& command) {
  auto flags = std::make_shared<AblateFlags>();
  add_model_flags(command, flags->model);
  command
      .add_option("--unit", flags->unit,
                  "unit to disable: expert, layer (its feed-forward block), movement (of its keys) or rule (keys learn "
                  "again from the initial ones without it)")
      ->capture_default_str();
  command.add_option("--memory", flags->memory, "memory of this run: knocks out its slots instead, by word class");
  command.add_option("--draws", flags->draws, "with --memory: number of random sets of slots that estimate chance")
      ->range(1, 10000)
      ->capture_default_str();
  command
      .add_option("--learn-documents", flags->learn_documents,
                  "with --unit rule: training documents from which keys learn again; 0 = all")
      ->not_negative()
      ->capture_default_str();
  command.add_option("--layer", flags->ablate.layer, "only this layer, counted from 0")->range(0, 4095);
  command.add_option("--data", flags->ablate.data,
                     "file, folder or builtin:DOMAIN (default: the run's validation data)");
  command
      .add_option("--max-documents", flags->ablate.max_documents,
                  "maximum number of documents, from the first; 0 = all")
      ->not_negative()
      ->capture_default_str();
  command.add_option("--shuffles", flags->ablate.shuffles, "random sign assignments that estimate chance")
      ->capture_default_str();
  command.add_option("--seed", flags->ablate.seed, "seed of the shuffles")->capture_default_str();
  command.add_option("--top", flags->top, "number of experts to show")->range(1, 1000000)->capture_default_str();
  command.add_flag("--all", flags->all, "show every expert");
  command.add_json(flags->json);
  command.callback([flags] { run(*flags); });
}

}  // namespace

CommandSpec ablate_command() {
  return {
      .name = "ablate",
      .group = CommandGroup::look_inside,
      .summary = "measure how the loss changes without an expert, a block, a key rule, key movement, or memory slots",
      .examples = {{"ablate runs/tiny --layer 1 --max-documents 5", "each expert of a layer"},
                   {"ablate runs/tiny --unit movement --max-documents 5",
                    "keys as they were before training, and a random control"},
                   {"ablate runs/tiny --unit rule --learn-documents 100 --max-documents 5",
                    "keys that learn again without each rule"}},
      .json = "the report",
      .set_up = set_up_ablate,
  };
}

}  // namespace some
