// Schedules of a run. They are pure functions of the step (counted from 0), so a resumed run continues them exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "model/config.h"
#include "recipe/recipe.h"

namespace some {

inline double learning_rate(const TrainConfig& train, std::int64_t step, std::int64_t total) {
  if (step < train.warmup_steps)
    return train.lr * static_cast<double>(step + 1) / static_cast<double>(train.warmup_steps);
  if (train.schedule == RateSchedule::constant) return train.lr;
  const double progress = static_cast<double>(step - train.warmup_steps) /
                          static_cast<double>(std::max<std::int64_t>(1, total - train.warmup_steps));
  return train.lr * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

// Returns the active experts per token: 1 for the first fraction of the steps, then k (spec 4, `topk_warmup`).
inline int scheduled_top_k(const ModelConfig& model, std::int64_t step, std::int64_t total) {
  return static_cast<double>(step) < model.topk_warmup * static_cast<double>(total) ? 1 : model.top_k;
}

// Returns the training temperature of an epoch (counted from 0): constant, or decreasing in equal steps towards
// train_temp_end, which it never reaches, as in the published v3.5.
inline double scheduled_temperature(const ModelConfig& model, std::int64_t epoch, int epochs) {
  if (model.train_temp_end < 0) return model.train_temp;
  return model.train_temp - (model.train_temp - model.train_temp_end) * static_cast<double>(epoch) /
                                static_cast<double>(std::max(1, epochs));
}

// Returns the progress of the run, from 0 in its first step to 1 in its last; used to anneal beta.
inline double scheduled_progress(std::int64_t step, std::int64_t total) {
  return total > 1 ? static_cast<double>(step) / static_cast<double>(total - 1) : 0.0;
}

}  // namespace some
