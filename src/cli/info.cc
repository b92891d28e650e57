#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "cli/commands.h"
#include "train/forecast.h"
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
  const Forecast forecast = forecast_run(Host(), recipe);
  const ParameterCounts& counts = forecast.parameters;
  const DataOutlook& outlook = forecast.data;
  const MemoryEstimate& memory = forecast.memory;
  const OperationCount& operations = forecast.operations;
  const TrainConfig& train = recipe.train;
  const std::int64_t per_step = forecast.stories_per_step, steps = forecast.steps, slots = forecast.slots_per_step;
  if (options.json) {
    print_json({{"recipe", options.recipe},
                {"total_parameters", counts.total},
                {"trainable_parameters", counts.trainable},
                {"steps", steps},
                {"tokens_per_step", slots},
                {"real_tokens_per_step", forecast.tokens_per_step},
                {"train_stories", outlook.train_stories},
                {"memory_bytes", static_cast<std::int64_t>(std::min(memory.total(), 9e18))},
                {"memory_fits", forecast.fits()},
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
             recipe.data.count_pads ? "" : fmt::format(", about {:.0f} real tokens", forecast.tokens_per_step),
             operations.total() / 1e12);
  fmt::print("memory       {} ({} parameters and optimizer, {} frozen library, {} activations)\n",
             human_bytes(memory.total()), human_bytes(memory.parameters), human_bytes(memory.library),
             human_bytes(memory.activations));
  if (!forecast.fits())
    fmt::print("             which is more than the {} there are: it would not be trained here\n",
               human_bytes(forecast.memory_limit));
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
