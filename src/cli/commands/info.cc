#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "cli/places.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/error.h"
#include "core/files/folders.h"
#include "evaluation/json.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"
#include "runs/forecast.h"
#include "runs/run.h"
#include "train/rank_checks.h"

namespace some {
namespace {

struct InfoFlags {
  std::string recipe;
  std::vector<std::string> overrides;
  std::optional<int> ranks;
  bool json = false;
};

struct StageOutlook {
  std::string name;
  Recipe recipe;
  bool counted = false;
  Forecast forecast;
};

std::vector<StageOutlook> stage_outlooks(const Recipe& recipe, const std::optional<RunData>& data) {
  std::vector<StageOutlook> out;
  if (recipe.stages.empty()) return out;
  const std::vector<Recipe> recipes = stage_recipes(recipe);
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    std::optional<DataUse> counted;
    if (data && i < data->stages.size()) counted = data->stages[i].train;
    out.push_back({stage_name(recipe, i), recipes[i], counted.has_value(), forecast_run(Host(), recipes[i], counted)});
  }
  return out;
}

// Returns the forecast of the stage with the highest memory need, with document, token and step counts summed over all
// stages.
Forecast all_stages(const std::vector<StageOutlook>& stages) {
  Forecast all = stages[0].forecast;
  for (const StageOutlook& stage : stages) {
    if (stage.forecast.memory.total() > all.memory.total()) all = stage.forecast;
  }
  all.text = DataUse();
  all.steps = 0;
  for (const StageOutlook& stage : stages) {
    if (!stage.forecast.text) {
      all.text.reset();
      all.steps.reset();
      all.real_tokens_per_step.reset();
      all.unknown_reason = fmt::format("{}: {}", stage.name, stage.forecast.unknown_reason);
      break;
    }
    all.text->documents += stage.forecast.text->documents;
    all.text->tokens += stage.forecast.text->tokens;
    all.text->used += stage.forecast.text->used;
    all.text->sequences += stage.forecast.text->sequences;
    *all.steps += *stage.forecast.steps;
  }
  return all;
}

nlohmann::json stage_json(const StageOutlook& stage, std::size_t number) {
  nlohmann::json out{{"stage", number}, {"title", stage.name}, {"train_text", nullptr}, {"steps", nullptr}};
  if (stage.forecast.text) {
    out["train_text"] = to_json(*stage.forecast.text);
    out["train_text"]["estimated"] = !stage.counted;
    out["steps"] = *stage.forecast.steps;
  }
  out["settings"] = nlohmann::json::object();
  return out;
}

// Returns the size in bytes of the memory (kNN store) that is built from the training text.
double bytes_of_store(const Recipe& recipe) { return store_bytes(recipe.memory, recipe.model.d_model, sizeof(float)); }

void run(InfoFlags options) {
  if (!names_recipe(options.recipe)) options.recipe = find_run_folder(options.recipe);
  const bool is_run = folder_exists(options.recipe);
  if (is_run && !options.overrides.empty())
    bad_input(Code::setting_misplaced, "{}: settings of a run cannot be changed here; use a recipe",
              options.overrides[0]);
  Recipe recipe =
      is_run ? read_run_recipe(options.recipe) : load_named_recipe(options.recipe, options.overrides);
  if (is_run) recipe.model.vocab = static_cast<int>(Tokenizer::load(RunPaths{options.recipe}.tokenizer()).vocab_size());
  // A run folder records the exact counts of its text.
  const auto data = is_run ? read_run_data(RunPaths{options.recipe}) : std::nullopt;
  std::optional<DataUse> counted;
  if (data) counted = data->train;
  const std::vector<StageOutlook> stages = stage_outlooks(recipe, data);
  const Forecast forecast = stages.empty() ? forecast_run(Host(), recipe, counted) : all_stages(stages);
  const ParameterCounts& counts = forecast.parameters;
  const MemoryEstimate& memory = forecast.memory;
  const bool gpu = forecast.device == DeviceKind::cuda;
  // Default: the number of ranks that share the experts.
  const int ranks = options.ranks.value_or(recipe.train.expert_ranks);
  check_rank_shares(ranks, recipe);
  const RankForecast each = forecast_ranks(recipe, forecast, ranks);
  if (options.json) {
    nlohmann::json out{{"recipe", options.recipe},
                       {"total_parameters", counts.total},
                       {"trainable_parameters", counts.trainable},
                       {"train_text", nullptr},
                       {"steps", nullptr},
                       {"tokens_per_step", forecast.slots_per_step},
                       {"real_tokens_per_step", nullptr},
                       {"device", gpu ? "cuda" : "cpu"},
                       {"precision", name_of(forecast.precision)},
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
      out["why_unknown"] = forecast.unknown_reason;
    }
    if (forecast.memory_known) {
      out["memory_bytes"] = static_cast<std::int64_t>(std::min(memory.total(), 9e18));
      out["memory"] = {{"parameters", memory.parameters},
                       {"library", memory.library},
                       {"activations", memory.activations},
                       {"store", memory.store},
                       {"program", memory.program}};
    }
    if (recipe.memory.slots > 0) out["store_bytes"] = bytes_of_store(recipe);
    if (ranks > 1)
      out["ranks"] = {{"ranks", ranks},
                      {"expert_ranks", recipe.train.expert_ranks},
                      {"micro_batches", each.micro_batches},
                      {"busy", each.busy},
                      {"memory_bytes", each.memory_bytes},
                      {"sent_bytes_per_step", each.sent_bytes_per_step},
                      {"expert_bytes_per_step", each.expert_bytes_per_step}};
    for (std::size_t i = 0; i < stages.size(); ++i) {
      nlohmann::json one = stage_json(stages[i], i + 1);
      for (const auto& [name, value] : recipe.stages[i].settings)
        one["settings"][name] = find_recipe_key(name)->write(value);
      out["stages"].push_back(one);
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
  if (recipe.from) fmt::print("from         {} (hash {})\n", recipe.from->text(), recipe.from->hash);
  fmt::print("parameters   {:.2f} M in all, {:.2f} M trainable ({:.2f}%)\n", static_cast<double>(counts.total) / 1e6,
             static_cast<double>(counts.trainable) / 1e6,
             100.0 * static_cast<double>(counts.trainable) / static_cast<double>(counts.total));
  const TrainConfig& train = recipe.train;
  const char* const at_most = forecast.text ? "" : "at most ";
  if (forecast.text) {
    fmt::print("text         {}{}\n",
               counted || forecast.bytes_per_token == 0
                   ? ""
                   : fmt::format("estimated, {:.1f} bytes per token: ", forecast.bytes_per_token),
               describe(*forecast.text, recipe.model.seq_len));
    const std::string how = stages.empty()
                                ? fmt::format("{} sequences per step, {} epoch{}", forecast.sequences_per_step,
                                              train.epochs, train.epochs == 1 ? "" : "s")
                                : fmt::format("in {} stages", stages.size());
    fmt::print("steps        {} ({})\n", *forecast.steps, how);
  } else {
    fmt::print("text         unknown: {}\n", forecast.unknown_reason);
    fmt::print("steps        unknown{}\n",
               train.max_steps > 0 ? fmt::format(", at most {} (train.max_steps)", train.max_steps) : "");
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageOutlook& stage = stages[i];
    std::string settings;
    for (const auto& [name, value] : recipe.stages[i].settings)
      settings += fmt::format("{}{} = {}", settings.empty() ? "" : ", ", name, find_recipe_key(name)->write(value));
    fmt::print("  stage {:<4} {}: {} steps; {}\n", i + 1, stage.name,
               stage.forecast.steps ? fmt::to_string(*stage.forecast.steps) : "unknown",
               settings.empty() ? "no other settings" : settings);
  }
  fmt::print("per step     {} positions{}, {}{:.3f} TFLOP\n", forecast.slots_per_step,
             forecast.real_tokens_per_step
                 ? fmt::format(", about {:.0f} non-padding tokens", *forecast.real_tokens_per_step)
                 : "",
             at_most, forecast.operations.total() / 1e12);
  const std::string where = fmt::format("on a {} in {}", gpu ? "GPU" : "CPU", name_of(forecast.precision));
  if (!forecast.memory_known) {
    fmt::print("memory       unknown {}\n", where);
    return;
  }
  const int together = recipe.train.expert_ranks;
  fmt::print("memory       {}{} {} ({} parameters and optimizer, {} frozen library{}, {} activations{}{})\n", at_most,
             format_bytes(memory.total()), where, format_bytes(memory.parameters), format_bytes(memory.library),
             together > 1 ? fmt::format(" (one of {} parts)", together) : "", format_bytes(memory.activations),
             forecast.text ? "" : " if every sequence were full",
             gpu ? "" : fmt::format(", {} program", format_bytes(memory.program)));
  if (recipe.memory.slots > 0)
    fmt::print("memory       {} of {} slots, filled after training\n", format_bytes(bytes_of_store(recipe)),
               recipe.memory.slots);
  if (ranks > 1)
    fmt::print(
        "ranks        {} with at most {} of {} micro-batches, {:.0f}% utilized; each needs {} and sends {} per step\n",
        ranks, each.micro_batches, recipe.train.accumulate, 100 * each.busy, format_bytes(each.memory_bytes),
        format_bytes(each.sent_bytes_per_step));
  if (together > 1) {
    const Mesh mesh{1, together};
    const int least = mesh.min_experts(recipe.model.experts), most = mesh.max_experts(recipe.model.experts);
    fmt::print("experts      of each layer on {} ranks, {} per rank; {} of a rank's traffic\n", together,
               most > least ? fmt::format("{} or {}", least, most) : fmt::to_string(least),
               format_bytes(each.expert_bytes_per_step));
  }
  if (!forecast.fits())
    fmt::print("             which exceeds the {} available: this machine cannot train it\n",
               format_bytes(forecast.memory_limit));
}

void set_up_info(Command& command) {
  auto options = std::make_shared<InfoFlags>();
  command.add_option("RECIPE", options->recipe, "recipe, by name or file, or run")->required();
  command.add_option("OVERRIDES", options->overrides, "key=value");
  command
      .add_option("--ranks", options->ranks,
                  "number of ranks for the memory and traffic per rank (default: expert_ranks)")
      ->range(1, 1048576);
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec info_command() {
  return {
      .name = "info",
      .group = CommandGroup::find_things,
      .summary = "show the parameters, steps and memory of a recipe or run",
      .examples = {{"info a4", "parameters, steps and memory, without running anything"},
                   {"info default data.train=mine.txt", "with your own text"},
                   {"info runs/tiny", ""}},
      .json = "the result",
      .set_up = set_up_info,
  };
}

}  // namespace some
