// Ablates parts of a model: measures how the loss of a text changes without one expert, one block, or the movement of
// keys, overall and by word class of the predicted token, and compares the change with chance.
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

enum class AblateUnit : std::uint8_t {
  expert,    // disabled: each token is routed to its next best expert instead
  layer,     // the feed-forward block of a layer is skipped
  movement,  // the keys of a layer are those of the beginning of the run, as if no key rule had moved them; and, as a
             // control, keys that moved as far in random directions
};
std::vector<std::string> ablate_units();  // their names

struct AblateOptions {
  AblateUnit unit = AblateUnit::expert;
  std::optional<int> layer;         // only this layer; none: all
  std::string data;                 // empty: the run's validation documents
  std::int64_t max_documents = 50;  // 0: all
  int shuffles = 1000;              // number of random sign assignments for the null distribution
  std::uint64_t seed = 0;
  std::function<void(int done, int total)> progress;
  std::function<bool()> stop;  // called after every ablation; true: report what was measured so far
};

struct KnockOut {
  std::string unit;                // "expert", "layer", "movement" or "random movement"
  int layer = 0, expert = -1;      // expert: only for experts
  double load = 0;                 // for experts: fraction of the layer's assignments, relative to the uniform load
  double moved = 0;                // for movements: mean distance of the keys
  double change = 0;               // of the mean loss, in nats/token
  double error = 0;                // standard error of the change over documents
  double p = 1;                    // p-value of |change / error|, for the maximum over all ablations
  std::vector<double> by_class;    // change of the mean loss of predicted tokens, by WordClass
  std::vector<std::string> words;  // the most frequent tokens of an expert
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

// Throws (bad_input) for a run whose experts cannot be disabled (no experts, hash routing, or top_k equal to the number
// of experts), without a feed-forward block, or without the keys of its beginning.
AblateReport ablate(OpenedRun& run, const AblateOptions& options);
nlohmann::json to_json(const AblateReport& report);

// Returns p-values of the documents' changes under random signs: for each unit (a row of changes, one per document),
// the fraction of shuffles in which the maximum |z| over all units is at least its own, counted as in ChanceTest.
std::vector<double> sign_flip_p(const std::vector<std::vector<double>>& changes, int shuffles, std::uint64_t seed);

}  // namespace some
