// `some plot`: the curves of runs in the terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "cli/command.h"
#include "cli/show.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "plot/text_chart.h"
#include "runs/history.h"
#include "runs/run.h"

namespace some {
namespace {

struct PlotFlags {
  std::vector<std::string> runs;
  std::string metric = "loss";
  int width = 0, height = 16;
  bool log = false, json = false;
};

using CurvePoints = std::vector<std::pair<double, double>>;

template <typename Line, typename Value>
CurvePoints points_of(const std::vector<Line>& lines, const Value& value) {
  CurvePoints out;
  for (const Line& line : lines) out.emplace_back(static_cast<double>(line.step), value(line));
  return out;
}

// The curves of a run by name. Usage is that of the middle layer.
const std::map<std::string, CurvePoints (*)(const RunHistory&)>& metrics() {
  static const std::map<std::string, CurvePoints (*)(const RunHistory&)> all = {
      {"train", [](const RunHistory& run) { return points_of(run.train, [](const auto& line) { return line.loss; }); }},
      {"lr", [](const RunHistory& run) { return points_of(run.train, [](const auto& line) { return line.lr; }); }},
      {"valid",
       [](const RunHistory& run) { return points_of(run.evaluations, [](const auto& line) { return line.loss; }); }},
      {"bits",
       [](const RunHistory& run) {
         return points_of(run.evaluations, [](const auto& line) { return line.bits_per_byte; });
       }},
      {"gini",
       [](const RunHistory& run) {
         return points_of(run.train, [&](const auto& line) {
           return run.middle < line.gini.size() ? line.gini[run.middle] : std::numeric_limits<double>::quiet_NaN();
         });
       }},
      {"entropy",
       [](const RunHistory& run) {
         return points_of(run.train, [&](const auto& line) {
           return run.middle < line.entropy.size() ? line.entropy[run.middle]
                                                   : std::numeric_limits<double>::quiet_NaN();
         });
       }},
  };
  return all;
}

struct NamedCurve {
  std::string name, metric;
  TextCurve curve;
};

// "loss" is the validation loss, with the training loss as well for a single run, or instead if a run has only one
// evaluation.
std::vector<std::string> metrics_to_draw(const std::string& asked, const std::vector<RunHistory>& runs) {
  if (asked != "loss") return {asked};
  if (runs.size() == 1) return {"train", "valid"};
  const bool evaluated =
      std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run.evaluations.size() > 1; });
  return {evaluated ? "valid" : "train"};
}

void run(const PlotFlags& flags) {
  if (flags.metric != "loss" && !metrics().contains(flags.metric)) {
    std::string names = "loss";
    for (const auto& [name, unused] : metrics()) names += ", " + name;
    bad_input(Code::option_invalid, "{} {}: must be one of {}", "--metric", flags.metric, names);
  }
  std::vector<RunHistory> runs;
  for (const std::string& folder : flags.runs) {
    read_run_recipe(folder);  // reports what is wrong if the folder is not a run
    runs.push_back(read_history(*find_run(folder, terminal_log()), terminal_log()));
  }
  std::vector<NamedCurve> curves;
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const std::string& metric : metrics_to_draw(flags.metric, runs)) {
      const std::string mark = runs.size() > 1     ? std::string(1, letters[i % letters.size()])
                               : metric == "valid" ? "o"
                                                   : "·";
      // An isolated evaluation would be hard to see among the points of training, so evaluations are connected.
      const bool line = runs.size() > 1 || metric != "valid" || flags.metric == "valid";
      curves.push_back({runs[i].found.folder, metric, {mark, metrics().at(metric)(runs[i]), line}});
    }
  }
  if (flags.json) {
    nlohmann::json out = nlohmann::json::array();
    for (const NamedCurve& one : curves) {
      nlohmann::json points = nlohmann::json::array();
      for (const auto& [step, value] : one.curve.points)
        points.push_back({step, std::isfinite(value) ? nlohmann::json(value) : nlohmann::json()});
      out.push_back({{"run", one.name}, {"metric", one.metric}, {"points", points}});
    }
    print_json({{"curves", out}});
    return;
  }
  std::vector<TextCurve> drawn;
  for (const NamedCurve& one : curves) drawn.push_back(one.curve);
  constexpr int labels = 10;
  const int width = flags.width > 0 ? flags.width : static_cast<int>(table_columns()) - labels;
  fmt::print("{}", text_chart(drawn, {width, flags.height, flags.log, "steps"}));
  for (const NamedCurve& one : curves) {
    const CurvePoints& points = one.curve.points;
    const std::string last =
        points.empty() ? "no points" : fmt::format("{:.4g} at step {:g}", points.back().second, points.back().first);
    fmt::print("  {}  {} {}: {}\n", one.curve.mark, one.name, one.metric, last);
  }
}

void set_up_plot(Command& command) {
  auto flags = std::make_shared<PlotFlags>();
  command.add_option("RUNS", flags->runs, "runs, by name (in runs) or folder")->run_folder()->required();
  command.add_option("--metric", flags->metric, "loss, train, valid, bits, lr, gini or entropy")->capture_default_str();
  command.add_flag("--log", flags->log, "logarithmic y axis");
  command.add_option("--width", flags->width, "characters between the axes (default: as wide as the terminal)")
      ->range(10, 1000);
  command.add_option("--height", flags->height, "lines between the axes")->range(2, 200)->capture_default_str();
  command.add_json(flags->json);
  command.callback([flags] { run(*flags); });
}

}  // namespace

CommandSpec plot_command() {
  return {
      .name = "plot",
      .group = CommandGroup::find_things,
      .summary = "draw curves of runs in the terminal",
      .examples = {{"plot runs/tiny", "training and validation loss"}, {"plot runs/tiny --metric lr", ""}},
      .json = "the curves",
      .set_up = set_up_plot,
  };
}

}  // namespace some
