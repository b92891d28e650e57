#include "train/rate.h"

namespace some {
namespace {
constexpr std::size_t max_marks = 50;
}

void RateMeter::add(double tokens, double slots, double operations) {
  now_.tokens += tokens;
  now_.slots += slots;
  now_.operations += operations;
}

void RateMeter::mark(std::int64_t step) {
  now_.when = std::chrono::steady_clock::now();
  now_.step = step;
  marks_.push_back(now_);
  if (marks_.size() > max_marks) marks_.pop_front();
}

void RateMeter::restart(std::int64_t step) {
  marks_.clear();
  mark(step);
}

RateMeter::Rates RateMeter::rates() const {
  const Mark &first = marks_.front(), &last = marks_.back();
  const double seconds = std::chrono::duration<double>(last.when - first.when).count();
  return {(last.tokens - first.tokens) / seconds, (last.slots - first.slots) / seconds,
          (last.operations - first.operations) / seconds, seconds / static_cast<double>(last.step - first.step)};
}

}  // namespace some
