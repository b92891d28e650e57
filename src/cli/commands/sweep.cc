// `some sweep`: trains a recipe with every combination of the given values, and shows the best one.
#include "lab/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/model_flags.h"
#include "cli/places.h"
#include "cli/program.h"
#include "cli/show.h"
#include "cli/show_queue.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace some {
namespace {

struct SweepFlags {
  std::string recipe, out, device, precision;
  std::vector<std::string> words;
  std::optional<int> threads;
  int seeds = 1;
  bool json = false;
};

SweepOptions options_of(const SweepFlags& flags) {
  SweepOptions out;
  out.recipe = find_recipe(flags.recipe);
  out.seeds = flags.seeds;
  for (const std::string& word : flags.words) {
    SweepAxis axis = parse_axis(word);
    if (axis.values.size() > 1)
      out.axes.push_back(std::move(axis));
    else
      out.overrides.push_back(word);
  }
  if (!flags.device.empty()) out.overrides.push_back("train.device=" + flags.device);
  if (!flags.precision.empty()) out.overrides.push_back("train.precision=" + flags.precision);
  if (flags.threads) out.overrides.push_back(fmt::format("train.threads={}", *flags.threads));
  const std::string name = std::filesystem::path(out.recipe).stem().string();
  out.folder = !flags.out.empty() ? flags.out : fmt::format("runs/{}-sweep", name);
  while (out.folder.size() > 1 && out.folder.back() == '/') out.folder.pop_back();
  return out;
}

void print_points(const Sweep& sweep, const SweepReport& report) {
  std::vector<std::size_t> widths;
  for (std::size_t axis = 0; axis < sweep.axes.size(); ++axis) {
    widths.push_back(display_width(sweep.axes[axis].setting));
    for (const SweepPoint& point : sweep.points)
      widths[axis] = std::max(widths[axis], display_width(point.values[axis]));
  }
  std::string head;
  for (std::size_t axis = 0; axis < sweep.axes.size(); ++axis)
    head += padded(sweep.axes[axis].setting, widths[axis]) + "  ";
  fmt::print("{}  runs  loss                bits/byte\n", head);
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepResult& result = report.results[i];
    std::string line;
    for (std::size_t axis = 0; axis < sweep.axes.size(); ++axis)
      line += padded(sweep.points[i].values[axis], widths[axis]) + "  ";
    std::string loss = "-", bits = "-";
    if (const auto count = static_cast<double>(result.losses.size()); count > 0) {
      loss = fmt::format("{:.4f}", result.loss);
      if (count > 1) loss += fmt::format(" ± {:.4f}", result.deviation);
      double sum = 0;
      for (const double one : result.bits_per_byte) sum += one;
      bits = fmt::format("{:.4f}", sum / count);
    }
    fmt::print("{}  {:>4}  {}{}{}\n", line, fmt::format("{}/{}", result.losses.size(), sweep.points[i].runs.size()),
               padded(loss, 20), bits, report.best == i ? "  best" : "");
  }
}

std::string settings_text(const Sweep& sweep, std::size_t point) {
  std::string text;
  for (std::size_t axis = 0; axis < sweep.axes.size(); ++axis)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", sweep.axes[axis].setting, sweep.points[point].values[axis]);
  return text;
}

void print_conclusion(const Sweep& sweep, const SweepReport& report, const std::string& folder) {
  if (report.best) {
    std::string text = fmt::format("lowest loss: {}", settings_text(sweep, *report.best));
    if (report.next) {
      const double ahead = report.results[*report.next].loss - report.results[*report.best].loss;
      text += fmt::format("; the next, {}, is {:.4f} higher", settings_text(sweep, *report.next), ahead);
      if (report.chance > 0)
        text += fmt::format(", {} twice the deviation between seeds ({:.4f})",
                            report.within_chance() ? "at most" : "more than", report.chance);
      else
        text += "; use several seeds (--seeds 3) to see whether this exceeds chance";
    }
    fmt::print("{}", wrapped(text, table_columns()));
  }
  print_line("the runs are in {0}: some compare {0}/..., some plot {0}/*, some board {0}", folder);
}

void run(const SweepFlags& flags) {
  const SweepOptions options = options_of(flags);
  const Sweep sweep = plan_sweep(options);
  watch_signals();
  print_line("{} runs in {}", sweep.plan.size(), options.folder);
  const std::vector<QueueEntry> entries = show_queue(sweep.plan);
  const SweepReport report = read_sweep(sweep, terminal_log());
  if (flags.json) {
    nlohmann::json out = to_json(sweep, report);
    out["folder"] = options.folder;
    out["failed"] = count_failures(entries);
    print_json(out);
  } else {
    print_points(sweep, report);
    print_conclusion(sweep, report, options.folder);
  }
  report_unfinished(entries, received_signal());
}

void set_up_sweep(Command& command) {
  auto flags = std::make_shared<SweepFlags>();
  command.add_option("RECIPE", flags->recipe, "recipe, by name or file")->required();
  command.add_option("SETTINGS", flags->words, "KEY=VALUE,VALUE,... for each setting to vary; KEY=VALUE for all runs");
  command.add_option("--seeds", flags->seeds, "number of seeds per combination")->range(1, 1000)->capture_default_str();
  command.add_option("-o,--out", flags->out, "folder of the run folders (default: runs/RECIPE-sweep)");
  command.add_option("--device", flags->device, "auto, cpu, cuda or cuda:N");
  command.add_option("--precision", flags->precision, "fp32 or bf16");
  command.add_option("--threads", flags->threads, "CPU threads; 0 = all available")->range(0, max_threads);
  command.add_json(flags->json);
  command.callback([flags] { run(*flags); });
}

}  // namespace

CommandSpec sweep_command() {
  return {
      .name = "sweep",
      .group = CommandGroup::experiments,
      .summary = "train a recipe with every combination of the given values, and show the best",
      .examples = {{"sweep tiny train.lr=0.003,0.01 --seeds 2", "four runs, a table, and the best"},
                   {"sweep default train.lr=0.006,0.012 some.top_k=1,2,4 data.train=mine.txt",
                    "six runs on your text"}},
      .json = "the results",
      .set_up = set_up_sweep,
  };
}

}  // namespace some
