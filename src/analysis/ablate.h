// Knock-outs: the change in loss if one expert is never chosen, over a text and by the word class that is predicted,
// compared with chance.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/word_classes.h"
#include "runs/run.h"

namespace some {

struct AblateOptions {
  std::optional<int> layer;         // only this layer; none: all
  std::string data;                 // empty: the run's validation documents
  std::int64_t max_documents = 50;  // 0: all
  int shuffles = 1000;              // random signs for chance
  std::uint64_t seed = 0;
  std::function<void(int done, int total)> progress;
  std::function<bool()> stop;  // called after every knock-out; true: report what was measured
};

// An expert that is never chosen: each token takes its next best expert instead.
struct KnockOut {
  int layer = 0, expert = 0;
  double load = 0;                 // share of the layer's choices, relative to the uniform load
  double change = 0;               // of the mean loss, in nats/token
  double error = 0;                // standard error of the change over documents
  double p = 1;                    // chance of so large a |change / error| for the largest of all knock-outs
  std::vector<double> by_class;    // change of the mean loss of predicted tokens of each class; by WordClass
  std::vector<std::string> words;  // its most frequent tokens
};

struct AblateReport {
  std::string run;
  std::int64_t step = 0;
  std::string data;
  std::int64_t documents = 0, positions = 0;
  double loss = 0;  // of the whole model
  int shuffles = 0;
  std::vector<double> class_shares;  // of the predicted tokens, by WordClass
  std::vector<KnockOut> knock_outs;  // by layer and expert
  bool stopped = false;
};

// Throws (bad_input) for a run whose experts cannot be knocked out: without experts, with hash routing, or if every
// token takes all of them.
AblateReport ablate(OpenedRun& run, const AblateOptions& options);
nlohmann::json to_json(const AblateReport& report);

// Chance under random signs of the documents' changes: for each unit (a row of changes, one per document), the share of
// shuffles in which the largest |z| of all units is at least its own, counted as in ChanceTest.
std::vector<double> sign_flip_p(const std::vector<std::vector<double>>& changes, int shuffles, std::uint64_t seed);

}  // namespace some
