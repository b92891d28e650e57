// Ablates key rules: the keys of a trained model learn again from their initial positions, with every rule and without
// one, and the losses afterwards are compared.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runs/run.h"

namespace some {

struct AblateRulesOptions {
  std::int64_t learn_documents = 800;  // training documents from which keys learn; 0: all
  std::string data;                    // measured text; empty: the run's validation documents
  std::int64_t max_documents = 50;     // of the measured text; 0: all
  int shuffles = 1000;                 // random sign assignments for the null distribution
  std::uint64_t seed = 0;
  std::function<void(int done, int total)> progress;
  std::function<bool()> stop;  // called after every variant; true: report what was measured
};

struct RuleKnockOut {
  std::string without;      // "alpha"; "all" for keys that stay at their initial positions
  double change = 0;        // of the mean loss, compared with keys that learned by every rule; in nats/token
  double error = 0, p = 1;  // as in KnockOut
  double moved = 0;         // mean distance that the keys moved
};

struct AblateRulesReport {
  std::string run, data, rules;  // rules: those of the run
  std::int64_t step = 0, documents = 0, positions = 0, learn_documents = 0, updates = 0;
  double loss = 0;          // with keys that learned again by every rule
  double loss_trained = 0;  // with the run's own keys
  double moved = 0;         // mean distance that the keys moved by every rule
  int shuffles = 0;
  std::vector<RuleKnockOut> knock_outs;
  bool stopped = false;
};

// The model is restored afterwards. Throws (bad_input) for a run without experts, without rules, or without its initial
// keys.
AblateRulesReport ablate_rules(OpenedRun& run, const AblateRulesOptions& options);
nlohmann::json to_json(const AblateRulesReport& report);

}  // namespace some
