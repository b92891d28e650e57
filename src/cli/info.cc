#include <fmt/format.h>

#include <filesystem>

#include "base/device.h"
#include "base/error.h"
#include "cli/commands.h"
#include "data/outlook.h"
#include "model/operations.h"
#include "train/recipe.h"
#include "train/run.h"

namespace some::cli {
namespace {

struct Options {
  std::string recipe;
  std::vector<std::string> overrides;
  bool json = false;
};

void run(const Options& options) {
  const bool is_run = std::filesystem::is_directory(options.recipe);
  Recipe recipe = is_run ? read_run_recipe(options.recipe) : load_recipe(options.recipe, options.overrides);
  if (is_run) recipe.model.vocab = static_cast<int>(Tokenizer::load(RunPaths{options.recipe}.tokenizer()).vocab_size());
  const ModelConfig& model = recipe.model;
  const ParameterCounts counts = count_parameters(model);
  const DataOutlook outlook = look_at_data(Host(), recipe.data, model.seq_len);
  const TrainConfig& train = recipe.train;
  const std::int64_t per_step = static_cast<std::int64_t>(train.batch) * train.accumulate;
  std::int64_t steps = outlook.train_stories / per_step * train.epochs;
  if (train.max_steps > 0) steps = outlook.train_stories > 0 ? std::min(steps, train.max_steps) : train.max_steps;
  const std::int64_t slots = per_step * model.seq_len;
  // Padding is computed only where it counts.
  const double computed_row = recipe.data.count_pads || outlook.mean_tokens <= 0
                                  ? model.seq_len
                                  : std::min<double>(model.seq_len, outlook.mean_tokens);
  const double computed = computed_row * train.batch;
  // "auto" means what this machine would do.
  const bool gpu = train.device.starts_with("cuda") || (train.device == "auto" && some::cuda::available());
  const bool bf16 = train.precision == "bf16" || (train.precision == "auto" && gpu);
  const MemoryEstimate memory = estimate_memory(model, computed, bf16, true);
  const OperationCount operations = count_operations(
      model, computed * train.accumulate, train.batch * train.accumulate * computed_row * (computed_row + 1) / 2);
  if (options.json) {
    print_json({{"recipe", options.recipe},
                {"total_parameters", counts.total},
                {"trainable_parameters", counts.trainable},
                {"steps", steps},
                {"tokens_per_step", slots},
                {"real_tokens_per_step", computed * train.accumulate},
                {"train_stories", outlook.train_stories},
                {"memory_bytes", static_cast<std::int64_t>(memory.total())},
                {"memory",
                 {{"parameters", memory.parameters}, {"library", memory.library}, {"activations", memory.activations}}},
                {"operations_per_step", operations.total()}});
    return;
  }
  fmt::print("{}{}\n", options.recipe, recipe.title.empty() ? "" : ": " + recipe.title);
  fmt::print("parameters   {:.2f} M in all, {:.2f} M trainable ({:.2f}%)\n", static_cast<double>(counts.total) / 1e6,
             static_cast<double>(counts.trainable) / 1e6,
             100.0 * static_cast<double>(counts.trainable) / static_cast<double>(counts.total));
  if (outlook.train_stories > 0) {
    fmt::print("steps        {} ({} stories, {} a step, {} epochs)\n", steps, outlook.train_stories, per_step,
               train.epochs);
  } else {
    fmt::print("steps        unknown: {}\n", outlook.why_unknown);
  }
  fmt::print("a step       {} slots{}, {:.3f} TFLOP\n", slots,
             recipe.data.count_pads ? "" : fmt::format(", about {:.0f} real tokens", computed * train.accumulate),
             operations.total() / 1e12);
  fmt::print("memory       {} ({} parameters and optimizer, {} frozen library, {} activations)\n",
             human_bytes(memory.total()), human_bytes(memory.parameters), human_bytes(memory.library),
             human_bytes(memory.activations));
}

}  // namespace

void add_info(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("info", "what a recipe or run amounts to: parameters, steps, memory");
  command->add_option("RECIPE", options->recipe, "recipe file or run folder")->required();
  command->add_option("OVERRIDES", options->overrides, "key=value");
  command->add_flag("--json", options->json, "print the result as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace some::cli
