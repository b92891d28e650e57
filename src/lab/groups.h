// Runs of one recipe at one scale, that differ in their seed: what a report speaks of as one experiment.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/series.h"
#include "runs/history.h"

namespace some {

enum class Departure { none, scaled, other_size, other_text };

struct RunGroup {
  std::string name;    // "a4", "a4@0.05", or the folder of a run that is not the lab's
  std::string recipe;  // name of the recipe file
  double scale = 1;
  std::vector<RunHistory> runs;  // by seed
  std::optional<Recipe> file;    // the recipe file as it stands now
  std::optional<Recipe> base;    // what that file builds on
  std::string base_name;

  const RunHistory& first() const { return runs.front(); }
  std::string id() const;  // in the document
  // As the recipe file tells it now: a number or note that was corrected since the run was trained is right here too.
  const Published* published() const {
    const Recipe& recipe = file ? *file : first().recipe;
    return recipe.published ? &*recipe.published : nullptr;
  }
  bool scaled() const { return scale != 1; }
  // How this run departs from the recipe file, and so from what was published.
  Departure departure() const;
  bool reads_builtin() const;  // built-in text in place of the recipe's own
  // Whether its numbers can be held against the published ones.
  bool comparable() const { return departure() == Departure::none; }
  // The recipe's title; with the sizes it really has where it is of another size.
  std::string title() const;
};

// Mean and sample deviation over the runs that have the number.
struct Spread {
  double mean = 0, deviation = 0;
  int count = 0;
  std::string text(int digits) const;  // "2.6102", "2.6102 ± 0.0031", or "–" without a number
};
using Measure = std::function<std::optional<double>(const RunHistory&)>;
Spread spread_of(const RunGroup& group, const Measure& measure);

std::optional<double> final_loss(const RunHistory& run);  // over real tokens
std::optional<double> final_bits(const RunHistory& run);
std::optional<double> final_headline(const RunHistory& run);

// Groups in the order of the index; runs of no recipe of the index come last, by name.
std::vector<RunGroup> group_runs(const SeriesIndex& index, const std::vector<FoundRun>& runs, const Log& log);

}  // namespace some
