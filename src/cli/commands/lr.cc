// `some lr`: a learning-rate range test.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/model_flags.h"
#include "cli/places.h"
#include "cli/program.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "plot/text_chart.h"
#include "train/lr_ramp.h"

namespace some {
namespace {

struct LrFlags {
  std::string recipe, out, device, precision;
  std::vector<std::string> overrides;
  std::optional<int> threads;
  LrRampOptions ramp;
  bool json = false;
};

void print_chart(const LrRamp& ramp) {
  TextCurve losses{"·", {}, false}, smoothed{"o", {}, true};
  for (const LrRampPoint& point : ramp.points) {
    const double x = std::round(1e6 * std::log10(point.lr)) / 1e6 + 0.0;  // labels without rounding errors
    losses.points.emplace_back(x, point.loss);
    smoothed.points.emplace_back(x, point.smoothed);
  }
  constexpr int labels = 10;
  TextChartOptions options;
  options.width = static_cast<int>(table_columns()) - labels;
  options.x_name = "log10 of the learning rate";
  fmt::print("{}", text_chart({losses, smoothed}, options));
  fmt::print("· training loss  o smoothed\n");
}

void print_conclusion(const LrRamp& ramp, const std::string& recipe) {
  const LrRampPoint& lowest = ramp.points.at(ramp.lowest);
  if (!ramp.suggestion) {
    fmt::print("the loss does not fall: raise --high, or look at the recipe (train.batch, train.clip)\n");
    return;
  }
  fmt::print("the loss falls fastest at {:.2g} and is lowest at {:.2g}{}\n", ramp.points.at(*ramp.steepest).lr,
             lowest.lr,
             ramp.diverged                           ? fmt::format("; the ramp ended at {:.2g}", ramp.points.back().lr)
             : ramp.lowest + 1 == ramp.points.size() ? "; it never rose: raise --high"
                                                     : "");
  fmt::print(
      "{}", wrapped(fmt::format("suggestion: train.lr={:.2g}. One ramp is a first guess; compare around it: some sweep "
                                "{} train.lr={:.2g},{:.2g},{:.2g}",
                                *ramp.suggestion, recipe, *ramp.suggestion / 2, *ramp.suggestion, *ramp.suggestion * 2),
                    table_columns()));
}

nlohmann::json to_json(const LrRamp& ramp) {
  nlohmann::json points = nlohmann::json::array();
  for (const LrRampPoint& point : ramp.points)
    points.push_back({{"lr", point.lr}, {"loss", point.loss}, {"smoothed", point.smoothed}});
  nlohmann::json out{{"points", points}, {"diverged", ramp.diverged}};
  out["suggestion"] = ramp.suggestion ? nlohmann::json(*ramp.suggestion) : nlohmann::json();
  out["steepest"] = ramp.steepest ? nlohmann::json(ramp.points[*ramp.steepest].lr) : nlohmann::json();
  out["lowest"] = ramp.points.empty() ? nlohmann::json() : nlohmann::json(ramp.points[ramp.lowest].lr);
  return out;
}

std::string table_of(const LrRamp& ramp) {
  std::string text = "lr,loss,smoothed\n";
  for (const LrRampPoint& point : ramp.points) text += fmt::format("{},{},{}\n", point.lr, point.loss, point.smoothed);
  return text;
}

void run(const LrFlags& flags) {
  std::vector<std::string> changes = flags.overrides;
  if (!flags.device.empty()) changes.push_back("train.device=" + flags.device);
  if (!flags.precision.empty()) changes.push_back("train.precision=" + flags.precision);
  if (flags.threads) changes.push_back(fmt::format("train.threads={}", *flags.threads));
  const Recipe recipe = load_named_recipe(flags.recipe, changes);
  watch_signals();
  LrRampOptions options = flags.ramp;
  PreparationProgress preparation;
  options.prepare = [&](const std::string& what, std::int64_t done, std::int64_t total) {
    preparation.show(what, done, total);
  };
  options.progress = [](int step, int steps) {
    if (is_terminal()) redraw(fmt::format("step {}/{}", step, steps));
  };
  options.stop = [] { return received_signal() != 0; };
  const LrRamp ramp = find_lr(recipe, terminal_log(), options);
  if (is_terminal()) redraw("");
  if (!flags.out.empty()) write_output_file(flags.out, table_of(ramp));
  if (flags.json) {
    print_json(to_json(ramp));
  } else if (!ramp.points.empty()) {
    print_chart(ramp);
    print_conclusion(ramp, flags.recipe);
  }
  if (const int signal = received_signal(); signal != 0) exit_code = 128 + signal;
}

void set_up_lr(Command& command) {
  auto flags = std::make_shared<LrFlags>();
  command.add_option("RECIPE", flags->recipe, "recipe, by name or file")->required();
  command.add_option("OVERRIDES", flags->overrides, "key=value, e.g. train.batch=16");
  command.add_option("--low", flags->ramp.low, "first learning rate")->capture_default_str();
  command.add_option("--high", flags->ramp.high, "last learning rate")->capture_default_str();
  command.add_option("--steps", flags->ramp.steps, "training steps of the ramp")
      ->range(20, 10000)
      ->capture_default_str();
  command.add_option("-o,--out", flags->out, "also write learning rates and losses to this CSV file");
  command.add_option("--device", flags->device, "auto, cpu, cuda or cuda:N");
  command.add_option("--precision", flags->precision, "fp32 or bf16");
  command.add_option("--threads", flags->threads, "CPU threads; 0 = all available")->range(0, max_threads);
  command.add_json(flags->json);
  command.callback([flags] { run(*flags); });
}

}  // namespace

CommandSpec lr_command() {
  return {
      .name = "lr",
      .group = CommandGroup::experiments,
      .summary = "find a learning rate: one short ramp from low to high; leaves no run behind",
      .examples = {{"lr tiny", "the loss while the learning rate rises, and a suggestion"},
                   {"lr default data.train=mine.txt -o lr.csv", "on your text; the numbers as CSV"}},
      .json = "the ramp",
      .set_up = set_up_lr,
  };
}

}  // namespace some
