// Continual learning as a matrix: a model meets one text after another, by every method, and after each text the loss
// on all of them is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/continual/learners.h"
#include "runs/run.h"

namespace some {

struct ContinualOptions {
  std::vector<std::string> texts;        // learned in this order: files, folders, builtin:DOMAIN
  bool both_orders = false;              // also from the last to the first
  std::vector<ContinualMethod> methods;  // empty: all
  std::int64_t tokens = 50000;           // learned of each text, from its beginning
  std::int64_t test_tokens = 5000;       // of each text, those after that
  ContinualSettings settings;            // `memory`: set by measure_continual()
  MemoryOverrides choices;
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> progress;
  std::function<bool()> stop;  // asked before each method; true: ends with what was measured
};

// Summary of a matrix of losses, in nats/token; lower is better for the first two, higher for the others.
struct ContinualMeasures {
  double average = 0;     // mean loss on all texts at the end
  double forgetting = 0;  // mean over all texts but the last: loss at the end - lowest loss before
  // mean over all texts but the last: loss after the text itself was learned - loss at the end
  double backward = 0;
  double forward = 0;  // mean over the learned texts: loss at the beginning - loss just before the text was learned
};
// losses[i][j]: on text j after i texts were learned; row 0: at the beginning, of which text 0 is the run's own.
ContinualMeasures measures_of(const std::vector<std::vector<double>>& losses);

struct ContinualResult {
  ContinualMethod method = ContinualMethod::finetune;
  std::vector<std::vector<double>> losses;  // [1 + learned texts][1 + learned texts]
  ContinualMeasures measures;
  double seconds = 0, test_seconds = 0;  // of learning; of one test of all texts, mean
  double kept_bytes = 0;                 // at the end, besides the model
};
struct ContinualOrder {
  std::vector<std::string> texts;  // the run's own text first
  std::vector<std::int64_t> tokens, test_tokens;
  std::vector<ContinualResult> results;
};
struct ContinualReport {
  std::string run;
  std::int64_t step = 0, window = 0, epochs = 0, batch = 0;
  double rate = 0, model_bytes = 0;
  std::uint64_t seed = 0;  // of the run
  std::vector<ContinualOrder> orders;
  bool stopped = false;
};

ContinualReport measure_continual(OpenedRun& run, const ContinualOptions& options);
nlohmann::json to_json(const ContinualReport& report);

// Means over runs that differ in their seeds; they must have the same texts and methods (bad_input).
struct ContinualSummary {
  ContinualMethod method = ContinualMethod::finetune;
  std::vector<std::vector<double>> losses;  // mean over the runs
  ContinualMeasures mean, deviation;        // standard deviation over the runs
  double seconds = 0, test_seconds = 0, kept_bytes = 0;
};
std::vector<std::vector<ContinualSummary>> summarize(const std::vector<ContinualReport>& reports);  // per order
std::string continual_page(const std::vector<ContinualReport>& reports);

}  // namespace some
