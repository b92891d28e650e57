// Compares the routing of two runs. Matches experts of both by the positions of a text that they process together, and
// compares the agreement with chance.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/assignments.h"
#include "runs/run.h"

namespace some {

struct RouteMatchOptions {
  std::string data;                 // empty: the validation documents of the first run
  std::int64_t max_documents = 50;  // 0: all
  int shuffles = 20;
  std::uint64_t seed = 0;
};

struct ExpertPair {
  int first = 0, second = 0;  // experts of the two runs
  double shared = 0;          // fraction of the first expert's positions at which the second is chosen too
};

struct LayerMatch {
  int layer = 0;
  // Fraction of the first run's choices whose matched expert is chosen by the second run at the same position.
  double agreement = 0;
  double chance_mean = 0, chance_most = 0;  // the same after shuffling the second run's positions and matching again
  double p = 1;                             // (1 + shuffles that agree at least as much) / (1 + shuffles)
  std::vector<ExpertPair> pairs;            // by expert of the first run, without those that have no partner
};

struct RouteMatch {
  std::string first, second;  // run folders
  std::string data;
  std::int64_t documents = 0, positions = 0;
  int shuffles = 0;
  std::vector<LayerMatch> layers;  // the layers that both runs have
};

// Throws (bad_input) if a run has no experts or the runs have different tokenizers.
RouteMatch match_routes(OpenedRun& first, OpenedRun& second, const RouteMatchOptions& options);
nlohmann::json to_json(const RouteMatch& match);

// Returns for each row the column of a one-to-one assignment with the maximum sum (Hungarian method); -1 for rows
// without a column, if there are fewer columns than rows. `weights` is [rows][columns] and not negative.
std::vector<int> best_assignment(const std::vector<std::vector<double>>& weights);

}  // namespace some
