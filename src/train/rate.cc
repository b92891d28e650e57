#include "train/rate.h"

#include <algorithm>
#include <numeric>

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

namespace {

constexpr std::int64_t least_distance = 25;  // steps between evaluations at equal distances

// Number of evaluations at equal distances.
std::int64_t evaluations_of(std::int64_t last, std::int64_t eval_every) {
  return std::min(-eval_every, last / least_distance);
}

}  // namespace

bool evaluation_is_due(std::int64_t step, std::int64_t last, std::int64_t eval_every) {
  if (eval_every >= 0) return eval_every > 0 && step % eval_every == 0;
  const std::int64_t count = evaluations_of(last, eval_every);
  return step * count / last != (step - 1) * count / last;
}

std::int64_t evaluations_left(std::int64_t done, std::int64_t last, std::int64_t steps_per_epoch,
                              std::int64_t eval_every) {
  if (done >= last) return 0;
  const auto multiples = [&](std::int64_t of) { return last / of - done / of; };
  std::int64_t count = multiples(steps_per_epoch);
  if (last % steps_per_epoch != 0) count += 1;
  if (eval_every == 0) return count;
  if (eval_every < 0) {
    const std::int64_t all = evaluations_of(last, eval_every);
    for (std::int64_t i = 1; i <= all; ++i) {
      const std::int64_t step = (i * last + all - 1) / all;  // the first one with step * all / last >= i
      if (step > done && step % steps_per_epoch != 0 && step != last) count += 1;
    }
    return count;
  }
  // Steps that are an end of an epoch as well count once; a common multiple beyond the run does not occur.
  const std::int64_t factor = eval_every / std::gcd(eval_every, steps_per_epoch);
  const std::int64_t both = steps_per_epoch > last / factor ? last + 1 : steps_per_epoch * factor;
  count += multiples(eval_every) - multiples(both);
  if (last % eval_every == 0 && last % steps_per_epoch != 0) count -= 1;
  return count;
}

}  // namespace some
