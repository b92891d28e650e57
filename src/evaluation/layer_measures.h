// Measures of every layer's key store and choices (spec 6), as numbers; evaluation/json.h converts them to JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "keys/measures.h"
#include "model/model.h"

namespace some {

struct UsageMeasures {  // of one usage vector
  double gini = 0;
  double entropy = 0;  // bits
  double effective_experts = 0;
  double max_over_mean_load = 0;
  std::int64_t experts_used = 0;
};
UsageMeasures usage_measures(const std::vector<double>& usage);

// Expert choices of one layer over a data set.
struct ChoiceMeasures {
  std::vector<double> counts, mass;  // by expert
  // The rest is measured on a sample, the first positions of the data set, so that little is read back from a GPU.
  double gate_entropy = 0;      // mean, nats
  std::int64_t sampled = 0;     // positions in the sample
  std::vector<Clique> cliques;  // the most frequent sets of experts chosen together
  std::int64_t distinct_sets = 0;
  double top_sets_share = 0;  // of the E/k most frequent sets: 1 if the experts have fused into groups of k
};

struct LayerMeasures {
  int layer = 0;
  UsageMeasures count, mass;  // of the key store's running usage
  std::int64_t experts_used_this_epoch = 0;
  struct {
    double least = 0, mean = 0, most = 0;
  } key_norm;
  struct Movement {
    double mean = 0, most = 0;
  };
  std::optional<Movement> key_moved;  // if a starting point is known
  double births = 0, deaths = 0;
  struct OnText {
    UsageMeasures count, mass;
    ChoiceMeasures choices;
  };
  std::optional<OnText> validation;  // if a text was evaluated
};

// Returns measures of every layer's current key store and of `choices` (may be empty). `start`: key positions from
// which movement is measured (may be empty). Empty for a model without experts.
std::vector<LayerMeasures> layer_measures(Model& model, const std::vector<ChoiceMeasures>& choices,
                                          const std::vector<Tensor>& start);

}  // namespace some
