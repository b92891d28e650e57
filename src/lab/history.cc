#include "lab/history.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "train/evaluate.h"
#include "train/run.h"
#include "train/schedule.h"

namespace some::lab {
namespace fs = std::filesystem;
namespace {

template <typename Use>
void each_line(const std::string& path, const Log& log, const Use& use) {
  if (!fs::exists(path)) return;
  std::istringstream lines(read_file(path));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    try {
      use(nlohmann::json::parse(line));
    } catch (const nlohmann::json::exception& error) {
      log.warning("{}:{}: left out of the report: {}", path, number, error.what());
    }
  }
}

LayerPoint layer_point(const nlohmann::json& line) {
  LayerPoint point;
  // A layer whose keys never learn counts no usage (study D2): what the validation stories chose stands in for it.
  const bool counted = line.at("count").at("experts_used").get<double>() > 0 || !line.contains("validation");
  const nlohmann::json& count = line.at(counted ? "count" : "validation");
  const nlohmann::json& mass = line.at(counted ? "mass" : "validation_mass");
  point.gini = count.at("gini");
  point.entropy = count.at("entropy");
  point.effective = count.at("effective_experts");
  point.gini_mass = mass.at("gini");
  point.entropy_mass = mass.at("entropy");
  point.used = line.at("experts_used_this_epoch");
  point.ever_used = count.at("experts_used");
  point.gate_entropy = line.value("gate_entropy", 0.0);
  if (line.contains("key_moved")) {
    point.moved_mean = line["key_moved"].at("mean");
    point.moved_most = line["key_moved"].at("max");
  }
  point.births = line.value("births", 0.0);
  point.deaths = line.value("deaths", 0.0);
  return point;
}

TrainPoint train_point(const nlohmann::json& line) {
  TrainPoint point{line.at("step"), line.at("epoch"), line.at("loss"), line.at("lr"), {}, {}};
  for (const auto& layer : line.value("layers", nlohmann::json::array())) {
    // Nothing is counted for a layer whose keys never learn: nothing to draw between its evaluations.
    const bool counted = layer.value("experts_used", 1.0) > 0;
    point.gini.push_back(counted ? layer.at("gini").get<double>() : NAN);
    point.entropy.push_back(counted ? layer.at("entropy").get<double>() : NAN);
  }
  return point;
}

EvalPoint eval_point(const nlohmann::json& line, const Recipe& recipe) {
  EvalPoint point;
  point.step = line.at("step");
  point.epoch = line.at("epoch");
  point.loss = line.at("loss");
  point.perplexity = line.at("perplexity");
  point.bits_per_byte = line.at("bits_per_byte");
  point.headline = point.loss;
  if (line.contains("padded_loss")) {
    point.padded_loss = line["padded_loss"].get<double>();
    point.headline = *point.padded_loss;
    // Every row predicts all its positions but the last.
    const double predicted = line.at("stories").get<double>() * (recipe.model.seq_len - 1);
    point.real_share = line.at("tokens").get<double>() / predicted;
  }
  if (line.contains("batch_mean_loss")) point.headline = line["batch_mean_loss"];
  for (const auto& layer : line.at("layers")) point.layers.push_back(layer_point(layer));
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
  // Extremes over the ends of epochs, which is what the reports look at.
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

RunHistory read_history(const FoundRun& run, const Log& log) {
  RunHistory history;
  history.found = run;
  history.recipe = read_run_recipe(run.folder);
  history.middle = static_cast<std::size_t>(history.recipe.model.layers / 2);
  const RunPaths paths{run.folder};
  ModelConfig model = history.recipe.model;
  if (fs::exists(paths.tokenizer())) model.vocab = Tokenizer::load(paths.tokenizer()).vocab_size();
  history.parameters = count_parameters(model);
  each_line(paths.metrics(), log, [&](const nlohmann::json& line) {
    const std::string kind = line.at("kind");
    if (kind == "train") {
      history.train.push_back(train_point(line));
    } else if (kind == "eval") {
      history.evaluations.push_back(eval_point(line, history.recipe));
    } else if (kind == "epoch" && !history.evaluations.empty() && history.evaluations.back().step == line.at("step")) {
      history.evaluations.back().train_loss = line.at("train_loss").get<double>();
    }
  });
  RunTiming& timing = history.timing;
  each_line(paths.timing(), log, [&](const nlohmann::json& line) {
    timing.seconds += line.at("seconds").get<double>();
    timing.tokens += line.at("real_tokens").get<double>();
    timing.slots += line.at("slots").get<double>();
    timing.operations += line.at("operations").get<double>();
    timing.steps += line.at("to_step").get<std::int64_t>() - line.at("from_step").get<std::int64_t>();
    timing.device = line.at("device");
    timing.memory = std::max(timing.memory, line.value("arena_bytes", 0.0));
  });
  return history;
}

}  // namespace some::lab
