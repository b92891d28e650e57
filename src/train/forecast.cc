#include "train/forecast.h"

#include <algorithm>
#include <limits>

#include "base/device.h"
#include "base/memory.h"

namespace some::train {
namespace {

double limit_of(bool gpu) { return gpu ? std::numeric_limits<double>::infinity() : memory_limit(); }

std::string gibibytes(double bytes) {
  return fmt::format("{:.{}f} GiB", bytes / (1 << 30), bytes < (10u << 30) ? 2 : 0);
}

}  // namespace

Forecast forecast_run(const Host& host, const Recipe& recipe) {
  const ModelConfig& model = recipe.model;
  const TrainConfig& train = recipe.train;
  Forecast out;
  out.parameters = count_parameters(model);
  out.data = look_at_data(host, recipe.data, model.seq_len);
  out.stories_per_step = static_cast<std::int64_t>(train.batch) * train.accumulate;
  out.slots_per_step = out.stories_per_step * model.seq_len;
  out.steps = out.data.train_stories / out.stories_per_step * train.epochs;
  if (train.max_steps > 0)
    out.steps = out.data.train_stories > 0 ? std::min(out.steps, train.max_steps) : train.max_steps;
  const double row = recipe.data.count_pads || out.data.mean_tokens <= 0
                         ? model.seq_len
                         : std::min<double>(model.seq_len, out.data.mean_tokens);
  const auto stories = static_cast<double>(out.stories_per_step);
  out.tokens_per_step = row * stories;
  out.operations = count_operations(model, out.tokens_per_step, stories * row * (row + 1) / 2);
  // "auto" means what this machine would do.
  const bool gpu = train.device.starts_with("cuda") || (train.device == "auto" && some::cuda::available());
  const bool bf16 = train.precision == "bf16" || (train.precision == "auto" && gpu);
  out.memory = estimate_memory(model, row * train.batch, bf16, true);
  out.memory_limit = limit_of(gpu);
  return out;
}

void check_memory(const Forecast& forecast) {
  if (forecast.fits()) return;
  const MemoryEstimate& memory = forecast.memory;
  bad_input(
      "the run needs {} of memory ({} for parameters and optimizer, {} for the frozen library, {} for activations) and "
      "there are {}: make the model or train.batch smaller; 'some info' tells what a change brings",
      gibibytes(memory.total()), gibibytes(memory.parameters), gibibytes(memory.library), gibibytes(memory.activations),
      gibibytes(forecast.memory_limit));
}

void check_memory(const ModelConfig& config, const Context& ctx) {
  const MemoryEstimate memory = estimate_memory(config, 0, ctx.compute == DType::bf16, false);
  const double limit = limit_of(ctx.device.is_cuda());
  if (memory.total() > limit)
    bad_input("the model needs {} of memory ({} for parameters, {} for the frozen library) and there are {}",
              gibibytes(memory.total()), gibibytes(memory.parameters), gibibytes(memory.library), gibibytes(limit));
}

}  // namespace some::train
