// Runs of one recipe at one scale that differ only in their seed: one experiment of a report.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/series.h"
#include "runs/history.h"

namespace some {

enum class RecipeDifference { none, scaled, other_size, other_text };

struct RunGroup {
  std::string name;    // "a4", "a4@0.05", or the folder of a run not started by `some lab`
  std::string recipe;  // name of the recipe file
  double scale = 1;
  std::vector<RunHistory> runs;  // by seed
  std::optional<Recipe> file;    // the current recipe file
  std::optional<Recipe> base;    // the recipe that the file is based on
  std::string base_name;

  const RunHistory& first() const { return runs.front(); }
  std::string id() const;  // anchor in the document
  // Returns the published numbers from the current recipe file, so that corrections made after training apply.
  const Published* published() const {
    const Recipe& recipe = file ? *file : first().recipe;
    return recipe.published ? &*recipe.published : nullptr;
  }
  bool scaled() const { return scale != 1; }
  // Returns how this run differs from the recipe file, and therefore from the published experiment.
  RecipeDifference departure() const;
  bool reads_builtin() const;  // built-in text instead of the recipe's own
  // True if its numbers can be compared with the published ones.
  bool comparable() const { return departure() == RecipeDifference::none; }
  // Returns the recipe's title, with the actual sizes if they differ from the recipe.
  std::string title() const;
};

// Mean and sample standard deviation over the runs that have the number.
struct Spread {
  double mean = 0, deviation = 0;
  int count = 0;
  std::string text(int digits) const;  // "2.6102", "2.6102 ± 0.0031", or "–" without a number
};
using Measure = std::function<std::optional<double>(const RunHistory&)>;
Spread spread_of(const RunGroup& group, const Measure& measure);

std::optional<double> final_loss(const RunHistory& run);  // over non-padding tokens
std::optional<double> final_bits(const RunHistory& run);
std::optional<double> final_headline(const RunHistory& run);

// Groups runs in the order of the index; runs whose recipe is not in the index come last, sorted by name.
std::vector<RunGroup> group_runs(const SeriesIndex& index, const std::vector<RunListEntry>& runs, const Log& log);

}  // namespace some
