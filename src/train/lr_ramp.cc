#include "train/lr_ramp.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "model/model.h"
#include "runs/run.h"
#include "train/step.h"

namespace some {
namespace {

constexpr double memory = 0.9;     // weight of the moving average
constexpr double rise = 1.5;       // the ramp ends when the smoothed loss exceeds the lowest one by this factor
constexpr std::size_t margin = 5;  // excluded points at both ends of the ramp, where the average covers too few losses
constexpr double stable_part = 3;  // a rate this many times below that of the lowest loss is stable

void check(const LrRampOptions& options) {
  if (!(options.low > 0)) bad_input(Code::option_invalid, "{} {}: must be a number > 0", "--low", options.low);
  if (!(options.high > options.low) || !std::isfinite(options.high))
    bad_input(Code::option_invalid, "{} {}: must be more than --low {}", "--high", options.high, options.low);
  if (options.steps < 20) bad_input(Code::option_invalid, "{} {}: must be >= 20", "--steps", options.steps);
}

}  // namespace

double ramp_rate(const LrRampOptions& options, int step) {
  return options.low * std::pow(options.high / options.low, static_cast<double>(step) / (options.steps - 1));
}

void judge_ramp(LrRamp& ramp) {
  double average = 0, weight = 0;
  for (LrRampPoint& point : ramp.points) {
    average = memory * average + (1 - memory) * point.loss;
    weight = memory * weight + (1 - memory);
    point.smoothed = average / weight;
  }
  ramp.lowest = 0;
  ramp.steepest.reset();
  ramp.suggestion.reset();
  for (std::size_t i = 0; i < ramp.points.size(); ++i) {
    if (ramp.points[i].smoothed < ramp.points[ramp.lowest].smoothed) ramp.lowest = i;
  }
  double fastest = 0;
  for (std::size_t i = margin; i + 1 < ramp.points.size() && i <= ramp.lowest; ++i) {
    const LrRampPoint &before = ramp.points[i - 1], &after = ramp.points[i + 1];
    const double slope = (after.smoothed - before.smoothed) / std::log(after.lr / before.lr);
    if (slope >= fastest) continue;
    fastest = slope;
    ramp.steepest = i;
  }
  if (ramp.steepest)
    ramp.suggestion = std::min(ramp.points[*ramp.steepest].lr, ramp.points[ramp.lowest].lr / stable_part);
}

LrRamp find_lr(const Recipe& asked, const Log& log, const LrRampOptions& options) {
  check(options);
  std::shared_ptr<Context> ctx = recipe_context(asked.train, log, Group(), Group());
  check_recipe(*ctx, asked);
  const TrainingStage stage = prepare_stages(*ctx, asked, "", options.cache, options.prepare).front();
  const TrainConfig& train = stage.recipe.train;
  Model model(ctx, stage.recipe.model, true);
  TrainStep step(model, train, stage.recipe.data.count_pads);
  BatchLoader loader(stage.train, stage.batches, train.batch, stage.recipe.seed, 0);
  LrRamp ramp;
  double lowest = INFINITY;
  for (int i = 0; i < options.steps; ++i) {
    std::vector<Batch> batches;
    for (int micro = 0; micro < train.accumulate; ++micro) batches.push_back(loader.next());
    // The initial schedules of the recipe, with the rate of the ramp.
    StepPlan plan = plan_step(train, stage.recipe.model, i, std::max<std::int64_t>(stage.steps, options.steps),
                              stage.steps_per_epoch);
    plan.lr = ramp_rate(options, i);
    const double loss = read_vector(step.run(batches, plan))[0];
    if (std::isfinite(loss)) ramp.points.push_back({plan.lr, loss});
    judge_ramp(ramp);
    if (!ramp.points.empty()) lowest = std::min(lowest, ramp.points.back().smoothed);
    ramp.diverged = !std::isfinite(loss) || ramp.points.back().smoothed > rise * lowest;
    if (options.progress) options.progress(i + 1, options.steps);
    if (ramp.diverged || (options.stop && options.stop())) break;
  }
  return ramp;
}

}  // namespace some
