// Loss over a data set, with the measures of every layer (spec 5, 6).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/rooms.h"
#include "data/token_data.h"
#include "keys/measures.h"
#include "model/model.h"

namespace some::train {

struct EvaluateOptions {
  int rows = 32;
  bool count_pads = false;
  int pad_id = 1, eos_id = 2;
  bool average_batches = false;  // eval_average = "batches": the mean of batch means, as published
  std::int64_t stories = 0;      // 0: all
  double temperature = 0;        // 0: eval_temp
};

// What the choices of one layer looked like over the data set.
struct ChoiceMeasures {
  std::vector<double> counts, mass;  // by expert
  // The rest is measured on a sample, the first positions of the data set, so that little is read back from a GPU.
  double gate_entropy = 0;      // mean, nats
  std::int64_t sampled = 0;     // positions in the sample
  std::vector<Clique> cliques;  // the most frequent sets of experts chosen together
  std::int64_t distinct_sets = 0;
  double top_sets_share = 0;  // of the E/k most frequent sets: 1 when the experts have fused into groups of k
};

struct Evaluation {
  double loss = 0;  // nats a real token
  double bits_per_byte = 0;
  double padded_loss = -1;     // where pads were counted: over all predicted positions; -1 otherwise
  double batch_mean_loss = 0;  // mean of batch means of what was trained on (padded where pads count)
  std::int64_t tokens = 0, bytes = 0, stories = 0;
  std::vector<ChoiceMeasures> layers;
  double perplexity() const;
  // The loss a run is compared by: padded where pads were counted, averaged as asked for.
  double headline(const EvaluateOptions& options) const;
};

Evaluation evaluate(Model& model, const TokenData& data, const EvaluateOptions& options);
nlohmann::json to_json(const Evaluation& evaluation, const EvaluateOptions& options);  // without the layers
// Measures of one usage vector (spec 6): gini, entropy, effective experts, load over fair load, experts used.
nlohmann::json usage_measures(const std::vector<double>& usage);
// Measures of every layer's key store now, and of `choices` (may be empty). `start`: key positions to measure movement
// from (may be empty).
nlohmann::json layer_measures(Model& model, const std::vector<ChoiceMeasures>& choices,
                              const std::vector<Tensor>& start);

}  // namespace some::train
