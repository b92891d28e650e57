// How fast a run goes, over its last steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

namespace some {

class RateMeter {
 public:
  void add(double tokens, double slots, double operations);
  // Everything up to this step is done. On a GPU that is known only where losses were just read back.
  void mark(std::int64_t step);
  // Forgets what was marked: what takes time from here on (an evaluation, a checkpoint) is not part of the rate.
  void restart(std::int64_t step);

  struct Rates {
    double tokens = 0, slots = 0, operations = 0;  // a second
    double step_seconds = 0;
  };
  bool known() const { return marks_.size() > 1; }
  Rates rates() const;                           // where known
  double tokens() const { return now_.tokens; }  // since this was made
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

}  // namespace some
