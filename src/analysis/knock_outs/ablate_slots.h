// Ablates memory slots: measures the change in loss without the slots whose token is of one word class, compared with
// the same number of random slots.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/word_classes.h"
#include "memory/memory.h"
#include "runs/run.h"

namespace some {

struct AblateSlotsOptions {
  std::string data;                 // empty: the run's validation documents
  std::int64_t max_documents = 50;  // 0: all
  int draws = 9;                    // random draws of slots per class
  std::uint64_t seed = 0;
  std::function<void(int done, int total)> progress;
  std::function<bool()> stop;  // called after every evaluation; true: report what was measured
};

struct SlotKnockOut {
  WordClass word_class = WordClass::other;  // of the token, at the place of its first insertion
  std::int64_t slots = 0;
  double change = 0;                          // change of the mean loss, in nats/token
  double control = 0, control_deviation = 0;  // change without the same number of random slots: mean and deviation
  double p = 1;                               // p-value of a change at least this far from the mean of the draws
};

struct AblateSlotsReport {
  std::string run, data;
  std::int64_t step = 0, documents = 0, slots = 0;
  double loss = 0;           // loss with the memory, which does not learn during the test
  double without_slots = 0;  // loss without any slots
  int draws = 0;
  std::vector<SlotKnockOut> knock_outs;  // by class, without classes that have no slots
  bool stopped = false;
};

// The memory is restored afterwards. Throws (bad_input) if it has no slots in use.
AblateSlotsReport ablate_slots(OpenedRun& run, Memory& memory, const AblateSlotsOptions& options);
nlohmann::json to_json(const AblateSlotsReport& report);

}  // namespace some
