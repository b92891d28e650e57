#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/places.h"
#include "train/forecast.h"
#include "train/json.h"
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
  if (is_run && !options.overrides.empty())
    bad_input("{}: a run is what it is; settings are changed in a recipe", options.overrides[0]);
  Recipe recipe =
      is_run ? read_run_recipe(options.recipe) : load_recipe(find_recipe(options.recipe), options.overrides);
  if (is_run) recipe.model.vocab = static_cast<int>(Tokenizer::load(RunPaths{options.recipe}.tokenizer()).vocab_size());
  // A run has counted its text.
  std::optional<DataUse> counted;
  if (const auto data = is_run ? read_run_data(RunPaths{options.recipe}) : std::nullopt) counted = data->train;
  const Forecast forecast = forecast_run(Host(), recipe, counted);
  const ParameterCounts& counts = forecast.parameters;
  const MemoryEstimate& memory = forecast.memory;
  const bool gpu = forecast.device == DeviceKind::cuda;
  if (options.json) {
    nlohmann::json out{{"recipe", options.recipe},
                       {"total_parameters", counts.total},
                       {"trainable_parameters", counts.trainable},
                       {"train_text", nullptr},
                       {"steps", nullptr},
                       {"tokens_per_step", forecast.slots_per_step},
                       {"real_tokens_per_step", nullptr},
                       {"device", gpu ? "cuda" : "cpu"},
                       {"precision", forecast.precision},
                       {"memory_bytes", nullptr},
                       {"memory", nullptr},
                       {"memory_fits", forecast.fits()},
                       {"operations_per_step", forecast.operations.total()}};
    if (forecast.text) {
      out["train_text"] = to_json(*forecast.text);
      out["train_text"]["estimated"] = !counted;
      out["steps"] = *forecast.steps;
      out["real_tokens_per_step"] = *forecast.real_tokens_per_step;
    } else {
      out["why_unknown"] = forecast.why_unknown;
    }
    if (forecast.memory_known) {
      out["memory_bytes"] = static_cast<std::int64_t>(std::min(memory.total(), 9e18));
      out["memory"] = {
          {"parameters", memory.parameters}, {"library", memory.library}, {"activations", memory.activations}};
    }
    if (recipe.from)
      out["from"] = {{"run", recipe.from->run},
                     {"step", recipe.from->step},
                     {"hash", recipe.from->hash},
                     {"optimizer", recipe.from->optimizer}};
    print_json(out);
    return;
  }
  fmt::print("{}{}\n", options.recipe, recipe.title.empty() ? "" : ": " + recipe.title);
  if (recipe.from) fmt::print("began from   {} (hash {})\n", recipe.from->text(), recipe.from->hash);
  fmt::print("parameters   {:.2f} M in all, {:.2f} M trainable ({:.2f}%)\n", static_cast<double>(counts.total) / 1e6,
             static_cast<double>(counts.trainable) / 1e6,
             100.0 * static_cast<double>(counts.trainable) / static_cast<double>(counts.total));
  const TrainConfig& train = recipe.train;
  const char* const at_most = forecast.text ? "" : "at most ";
  if (forecast.text) {
    fmt::print("text         {}{}\n",
               counted ? "" : "at about four bytes a token: ", describe(*forecast.text, recipe.model.seq_len));
    fmt::print("steps        {} ({} sequences a step, {} epoch{})\n", *forecast.steps, forecast.sequences_per_step,
               train.epochs, train.epochs == 1 ? "" : "s");
  } else {
    fmt::print("text         unknown: {}\n", forecast.why_unknown);
    fmt::print("steps        unknown{}\n",
               train.max_steps > 0 ? fmt::format(", at most {} (train.max_steps)", train.max_steps) : "");
  }
  fmt::print(
      "a step       {} slots{}, {}{:.3f} TFLOP\n", forecast.slots_per_step,
      forecast.real_tokens_per_step ? fmt::format(", about {:.0f} real tokens", *forecast.real_tokens_per_step) : "",
      at_most, forecast.operations.total() / 1e12);
  const std::string where = fmt::format("on a {} in {}", gpu ? "GPU" : "CPU", forecast.precision);
  if (!forecast.memory_known) {
    fmt::print("memory       unknown {}\n", where);
    return;
  }
  fmt::print("memory       {}{} {} ({} parameters and optimizer, {} frozen library, {} activations{})\n", at_most,
             human_bytes(memory.total()), where, human_bytes(memory.parameters), human_bytes(memory.library),
             human_bytes(memory.activations), forecast.text ? "" : " if every sequence were full");
  if (!forecast.fits())
    fmt::print("             which is more than the {} there are: it would not be trained here\n",
               human_bytes(forecast.memory_limit));
}

}  // namespace

void add_info(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("info", "what a recipe or run amounts to: parameters, steps, memory");
  command->add_option("RECIPE", options->recipe, "recipe, by name or file, or run folder")->required();
  command->add_option("OVERRIDES", options->overrides, "key=value");
  command->add_flag("--json", options->json, "print the result as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace some::cli
