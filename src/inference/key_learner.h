// Keys that go on learning while a trained model is used (spec 7): the update of spec 4 on what the model reads,
// weights as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model.h"

namespace some {

// The run's settings with only the named rules switched on: "alpha,beta,delta,balance" in any choice. Empty: as the run
// was trained.
KeySettings choose_rules(const KeySettings& settings, const std::string& rules);
// The rules that are on, "alpha,beta"; "none" without any.
std::string rules_text(const KeySettings& settings);

// What the update changes, kept so that it can be put back or compared.
class KeySnapshot {
 public:
  explicit KeySnapshot(Model& model);
  void restore(Model& model) const;
  bool identical(Model& model) const;  // all of it, to the bit
  struct Distance {
    double mean = 0, most = 0;
  };
  Distance distance(Model& model, int layer) const;  // of the keys now from those kept

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
  // step: updates of the run so far; the numbers drawn for rebirth and for update_fraction go on from there.
  KeyLearner(Model& model, const KeySettings& settings, std::int64_t step);
  ~KeyLearner();  // the model's own settings come back
  KeyLearner(const KeyLearner&) = delete;
  KeyLearner& operator=(const KeyLearner&) = delete;

  // Takes in the rows of one pass, layer by layer, from an observer. targets: rows with a negative one do not take
  // part; null: all do.
  void observe(int layer, const RouterTape& tape, const Tensor* targets);
  // The pass is over; so many rows were in it.
  void pass_done(std::int64_t rows) { rows_ += rows; }
  // The update on everything taken in since the last one. Annealing is at its end: training is over.
  void update();
  std::int64_t updates() const { return updates_; }

 private:
  Model& model_;
  KeySettings own_;
  std::vector<KeyPlan> plans_;  // of the next update
  std::int64_t step_, updates_ = 0, rows_ = 0;
};

}  // namespace some
