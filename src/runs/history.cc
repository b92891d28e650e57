#include "runs/history.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json_lines.h"
#include "core/old_names.h"
#include "evaluation/evaluate.h"
#include "recipe/schedule.h"
#include "runs/checkpoint.h"
#include "runs/run.h"
#include "runs/train_state.h"

namespace some {
namespace fs = std::filesystem;
namespace {

LayerPoint layer_point(const JsonObject& line) {
  LayerPoint point;
  // Layers with frozen keys count no usage (study D2); the choices on the validation text are used instead.
  const bool counted = line.object("count").need<double>("experts_used") > 0 || !line.has("validation");
  const JsonObject count = line.object(counted ? "count" : "validation");
  const JsonObject mass = line.object(counted ? "mass" : "validation_mass");
  point.gini = count.need<double>("gini");
  point.entropy = count.need<double>("entropy");
  point.effective = count.need<double>("effective_experts");
  point.gini_mass = mass.need<double>("gini");
  point.entropy_mass = mass.need<double>("entropy");
  point.used = line.need<double>("experts_used_this_epoch");
  point.ever_used = count.need<double>("experts_used");
  point.gate_entropy = line.get<double>("gate_entropy", 0.0);
  if (line.has("key_moved")) {
    point.moved_mean = line.object("key_moved").need<double>("mean");
    point.moved_most = line.object("key_moved").need<double>("max");
  }
  point.births = line.get<double>("births", 0.0);
  point.deaths = line.get<double>("deaths", 0.0);
  return point;
}

// Only expert layers are measured, all of them.
std::size_t measured_layers(const Recipe& recipe) {
  return recipe.model.ffn == Ffn::some ? static_cast<std::size_t>(recipe.model.layers) : 0;
}

void check_layers(const JsonObject& line, std::size_t found, const Recipe& recipe) {
  if (found == measured_layers(recipe)) return;
  line.wrong("layers", fmt::format("a list of {} layers, as in the run's config.toml", measured_layers(recipe)));
}

TrainPoint train_point(const JsonObject& line, const Recipe& recipe) {
  TrainPoint point{line.need<std::int64_t>("step"),
                   line.need<double>("epoch"),
                   line.need<double>("loss"),
                   line.need<double>("lr"),
                   {},
                   {}};
  if (!line.has("layers")) return point;
  for (const JsonObject& layer : line.objects("layers")) {
    // Layers with frozen keys count nothing, so there are no points between evaluations.
    const bool counted = layer.get<double>("experts_used", 1.0) > 0;
    point.gini.push_back(counted ? layer.need<double>("gini") : NAN);
    point.entropy.push_back(counted ? layer.need<double>("entropy") : NAN);
  }
  check_layers(line, point.gini.size(), recipe);
  return point;
}

EvalPoint eval_point(const JsonObject& line, const Recipe& recipe) {
  EvalPoint point;
  point.step = line.need<std::int64_t>("step");
  point.epoch = line.need<double>("epoch");
  point.loss = line.need<double>("loss");
  point.perplexity = line.need<double>("perplexity");
  point.bits_per_byte = line.need<double>("bits_per_byte");
  point.headline = point.loss;
  if (line.has("padded_loss")) {
    point.padded_loss = line.need<double>("padded_loss");
    point.headline = *point.padded_loss;
    // In every row all positions except the last are predicted.
    const double predicted = line.need<double>(key_in(line, "documents")) * (recipe.model.seq_len - 1);
    point.real_share = line.need<double>("tokens") / predicted;
  }
  if (line.has("batch_mean_loss")) point.headline = line.need<double>("batch_mean_loss");
  for (const JsonObject& layer : line.objects("layers")) point.layers.push_back(layer_point(layer));
  check_layers(line, point.layers.size(), recipe);
  return point;
}

}  // namespace

const EvalPoint* RunHistory::at_epoch(double epoch) const {
  for (const EvalPoint& point : evaluations) {
    if (std::abs(point.epoch - epoch) < 1e-9) return &point;
  }
  return nullptr;
}

const EvalPoint* RunHistory::best() const {
  const auto found = std::min_element(evaluations.begin(), evaluations.end(),
                                      [](const EvalPoint& a, const EvalPoint& b) { return a.headline < b.headline; });
  return found == evaluations.end() ? nullptr : &*found;
}

std::optional<double> RunHistory::measured_once(const std::string& number) const {
  if (number == "total_parameters_m") return static_cast<double>(parameters.total) / 1e6;
  if (number == "trainable_parameters_m") return static_cast<double>(parameters.trainable) / 1e6;
  if (number == "step_seconds")
    return timing.steps > 0 ? std::optional(timing.seconds / static_cast<double>(timing.steps)) : std::nullopt;
  if (last() == nullptr) return std::nullopt;
  if (number == "steps") return static_cast<double>(last()->step);
  if (middle >= last()->layers.size()) return std::nullopt;
  const LayerPoint& at_best = best()->layers.at(middle);
  if (number == "experts_used") return at_best.ever_used;
  if (number == "best_gini") return at_best.gini;
  if (number == "best_entropy") return at_best.entropy;
  if (number == "best_gini_mass") return at_best.gini_mass;
  if (number == "best_entropy_mass") return at_best.entropy_mass;
  // Extremes over the ends of epochs, as in the reports.
  std::optional<double> peak, low;
  for (const EvalPoint& point : evaluations) {
    if (point.epoch != std::floor(point.epoch)) continue;
    peak = std::max(peak.value_or(0.0), point.layers.at(middle).gini);
    low = std::min(low.value_or(INFINITY), point.layers.at(middle).entropy);
  }
  if (number == "gini_peak") return peak;
  if (number == "entropy_low") return low;
  return std::nullopt;
}

std::optional<double> RunHistory::measured(const std::string& measure, int epoch) const {
  const EvalPoint* point = at_epoch(epoch);
  if (point == nullptr) return std::nullopt;
  if (measure == "train") return point->train_loss;
  if (measure == "val") return point->headline;
  if (measure == "ppl") return std::exp(point->headline);
  if (measure == "temperature") return scheduled_temperature(recipe.model, epoch - 1, recipe.train.epochs);
  if (middle >= point->layers.size()) return std::nullopt;
  const LayerPoint& layer = point->layers[middle];
  if (measure == "gini") return layer.gini;
  if (measure == "entropy") return layer.entropy;
  if (measure == "gini_mass") return layer.gini_mass;
  if (measure == "entropy_mass") return layer.entropy_mass;
  if (measure == "dead") {
    const EvalPoint* before = epoch > 1 ? at_epoch(epoch - 1) : nullptr;
    return layer.deaths - (before != nullptr ? before->layers.at(middle).deaths : 0.0);
  }
  return std::nullopt;
}

namespace {

// Lines do not name their run, but a checkpoint has the checksum of those before it.
void warn_if_replaced(const RunPaths& paths, const Log& log) {
  try {
    const std::vector<CheckpointName> saved = list_checkpoints(paths.folder);
    if (saved.empty()) return;
    const TrainState state = train_state_from(read_checkpoint_state(saved.back()), saved.back().folder);
    if (state.metrics_checksum.empty() || state.metrics_bytes == 0) return;
    const std::string now = exists_path(paths.metrics()) ? read_file(paths.metrics()) : "";
    const auto size = std::min(now.size(), static_cast<std::size_t>(state.metrics_bytes));
    if (std::ssize(now) >= state.metrics_bytes && hex(checksum_of(now.data(), size)) == state.metrics_checksum) return;
    log.warning(Code::metrics_damaged,
                "{} is different from its state at step {}: it may belong to another run; restore the file of this run",
                paths.metrics(), saved.back().step);
  } catch (const Error&) {
    // Readers of the checkpoint report what is wrong with it.
  }
}

}  // namespace

RunHistory read_history(const RunListEntry& run, const Log& log) {
  RunHistory history;
  history.found = run;
  history.recipe = read_run_recipe(run.folder);
  history.middle = static_cast<std::size_t>(history.recipe.model.layers / 2);
  const RunPaths paths{run.folder};
  ModelConfig model = history.recipe.model;
  if (exists_path(paths.tokenizer())) model.vocab = Tokenizer::load(paths.tokenizer()).vocab_size();
  history.parameters = count_parameters(model);
  const auto damaged = [&](const Error& error) {
    log.warning(Code::run_unlisted, "omitted from the report: {}", error.what());
  };
  const auto read_metrics = [&](const JsonObject& line) {
    const auto kind = line.need<std::string>("kind");
    if (kind == "train") {
      history.train.push_back(train_point(line, history.recipe));
    } else if (kind == "eval") {
      history.evaluations.push_back(eval_point(line, history.recipe));
    } else if (kind == "epoch" && !history.evaluations.empty() &&
               history.evaluations.back().step == line.need<std::int64_t>("step")) {
      history.evaluations.back().train_loss = line.need<double>("train_loss");
    }
  };
  for_each_json_line(paths.metrics(), read_metrics, damaged);
  warn_if_replaced(paths, log);
  RunTiming& timing = history.timing;
  const auto read_timing = [&](const JsonObject& line) {
    RunTiming more = timing;  // a line counts completely or is skipped
    more.seconds += line.need<double>("seconds");
    more.tokens += line.need<double>("real_tokens");
    more.slots += line.need<double>("slots");
    more.operations += line.need<double>("operations");
    constexpr std::int64_t most = std::int64_t{1} << 53;
    more.steps += line.need<std::int64_t>("to_step", 0, most) - line.need<std::int64_t>("from_step", 0, most);
    more.device = line.need<std::string>("device");
    more.memory = std::max(more.memory, line.get<double>("arena_bytes", 0.0));
    timing = more;
  };
  for_each_json_line(paths.timing(), read_timing, damaged);
  return history;
}

}  // namespace some
