// Key learning during inference (spec 7): applies the key update of spec 4 to the text that the model reads, with fixed
// weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model.h"

namespace some {

// Returns the settings of the run with only the listed rules enabled: any subset of "alpha,beta,delta,balance". Empty:
// the rules of training.
KeySettings choose_rules(const KeySettings& settings, const std::string& rules);
// Returns the enabled rules as "alpha,beta"; "none" if there are none.
std::string rules_text(const KeySettings& settings);

// Copy of all state that key updates change, for comparison and restoring.
class KeySnapshot {
 public:
  explicit KeySnapshot(Model& model);
  void restore(Model& model) const;
  bool bitwise_equal(Model& model) const;  // true if all of the state is bit-identical
  struct Distance {
    double mean = 0, most = 0;
  };
  Distance distance(Model& model, int layer) const;  // distance of the current keys from the stored ones

 private:
  struct One {
    std::vector<std::pair<std::string, Tensor>> tensors;
    Tensor epoch_counts;
    std::int64_t steps;
    const Tensor& of(const std::string& name) const;
  };
  std::vector<One> layers_;
};

class KeyLearner {
 public:
  // `step` is the number of updates so far, including those of training; it continues the random streams of rebirth and
  // update_fraction.
  KeyLearner(Model& model, const KeySettings& settings, std::int64_t step);
  ~KeyLearner();  // restores the key settings of the model
  KeyLearner(const KeyLearner&) = delete;
  KeyLearner& operator=(const KeyLearner&) = delete;

  // Accumulates the rows of one pass of a layer; called by a layer observer. Rows with a negative target are excluded;
  // targets == null includes all rows.
  void observe(int layer, const RouterTape& tape, const Tensor* targets);
  // Ends a pass with this many rows.
  void pass_done(std::int64_t rows) { rows_ += rows; }
  // Applies one update for everything observed since the last one. Annealing is at its end value, because training is
  // over.
  void update();
  std::int64_t updates() const { return updates_; }

 private:
  Model& model_;
  KeySettings own_;
  std::vector<KeyPlan> plans_;  // for the next update
  std::int64_t step_, updates_ = 0, rows_ = 0;
};

}  // namespace some
