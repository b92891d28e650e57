// Throughput of a run over its last steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

namespace some {

class RateMeter {
 public:
  void add(double tokens, double slots, double operations);
  // Marks all work up to this step as done. On a GPU this is known only when losses were just read back.
  void mark(std::int64_t step);
  // Discards all marks, so that the time spent until now (an evaluation, a checkpoint) is not part of the rate.
  void restart(std::int64_t step);

  struct Rates {
    double tokens = 0, slots = 0, operations = 0;  // per second
    double step_seconds = 0;
  };
  bool known() const { return marks_.size() > 1; }
  Rates rates() const;                           // requires known()
  double tokens() const { return now_.tokens; }  // since construction
  double slots() const { return now_.slots; }
  double operations() const { return now_.operations; }

 private:
  struct Mark {
    std::chrono::steady_clock::time_point when;
    std::int64_t step = 0;
    double tokens = 0, slots = 0, operations = 0;
  };
  Mark now_;
  std::deque<Mark> marks_;
};

// Time per token of interruptions: evaluations and the checkpoints that follow them.
class PauseMeter {
 public:
  void add(double seconds, double tokens) {
    seconds_ += seconds;
    tokens_ += tokens;
  }
  // Before the first measured pause, assumes that a forward pass takes a third of the time of a step.
  double seconds(double tokens, const RateMeter::Rates& training) const {
    return tokens * (tokens_ > 0 ? seconds_ / tokens_ : 1 / (3 * training.tokens));
  }

 private:
  double seconds_ = 0, tokens_ = 0;
};

// True if train.eval_every schedules an evaluation after `step` of the `last` steps of a stage: after every N-th step;
// for -N after N steps at equal distances, or fewer in a short run.
bool evaluation_is_due(std::int64_t step, std::int64_t last, std::int64_t eval_every);

// Returns how many steps in (done, last] are scheduled for an evaluation: the last one, the ends of epochs, and those
// by eval_every.
std::int64_t evaluations_left(std::int64_t done, std::int64_t last, std::int64_t steps_per_epoch,
                              std::int64_t eval_every);

}  // namespace some
