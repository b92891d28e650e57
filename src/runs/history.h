// Reads the files of a run folder for a report: its recipe, its measures over the steps, its timing, its keys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"
#include "runs/run_list.h"

namespace some {

struct TrainPoint {
  std::int64_t step = 0;
  double epoch = 0, loss = 0, lr = 0;
  std::vector<double> gini,
      entropy;  // of every layer's usage; empty if the line does not report it, NaN for a layer without counts
};

struct LayerPoint {
  double gini = 0, entropy = 0, gini_mass = 0, entropy_mass = 0, effective = 0, gate_entropy = 0;
  double used = 0;       // experts chosen at least once in this epoch so far
  double ever_used = 0;  // experts with usage above 0, which a running mean never loses again
  double moved_mean = 0, moved_most = 0;
  double births = 0, deaths = 0;
};

struct EvalPoint {
  std::int64_t step = 0;
  double epoch = 0;
  double loss = 0;  // over non-padding tokens
  double perplexity = 0, bits_per_byte = 0;
  double headline = 0;  // the loss to compare with the published number: with the same padding and averaging
  std::optional<double> padded_loss;
  std::optional<double> train_loss;  // mean over the epoch that ends here
  double real_share = 1;             // fraction of non-padding tokens among the predicted and counted positions
  std::vector<LayerPoint> layers;
};

struct RunTiming {
  double seconds = 0, tokens = 0, slots = 0, operations = 0;
  std::int64_t steps = 0;  // covered by `seconds`
  std::string device;
  double memory = 0;  // peak bytes of working memory
};

struct RunHistory {
  RunListEntry found;
  Recipe recipe;  // as it was trained
  ParameterCounts parameters;
  std::vector<TrainPoint> train;
  std::vector<EvalPoint> evaluations;
  RunTiming timing;
  std::size_t middle = 0;  // layer

  const EvalPoint* last() const { return evaluations.empty() ? nullptr : &evaluations.back(); }
  const EvalPoint* at_epoch(double epoch) const;
  const EvalPoint* best() const;  // with the lowest loss as trained
  // Returns the measured number that corresponds to a published one ("train", "val", "ppl", "gini", ...) of an epoch.
  std::optional<double> measured(const std::string& measure, int epoch) const;
  // The same for a number of the whole run ("total_parameters_m", "best_gini", ...).
  std::optional<double> measured_once(const std::string& number) const;
};

// Damaged or incomplete lines are skipped with a warning: a report can be made while a run is in progress.
RunHistory read_history(const RunListEntry& run, const Log& log = {});

}  // namespace some
