// Watchdog: measures, by polling at fixed intervals, how long there was no sign of life.
#pragma once

#include <chrono>

namespace some {

class SilenceTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  SilenceTimer(double every_seconds, Time now) : every_(every_seconds), since_(now), looked_(now) {}

  // Records a poll: `sign` is true if there was a sign of life since the last one. Returns the seconds of silence so
  // far.
  double record_poll(bool sign, Time now) {
    // Time in which the observer itself was not scheduled does not count: a stopped process, once resumed, would
    // otherwise find all other ranks silent. Silence before that time still counts.
    if (const Time awaited = looked_ + seconds(every_); now > looked_ + seconds(2.5 * every_)) since_ += now - awaited;
    looked_ = now;
    if (sign) since_ = now;
    return std::chrono::duration<double>(now - since_).count();
  }

 private:
  static std::chrono::steady_clock::duration seconds(double count) {
    return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(count));
  }

  double every_;
  Time since_, looked_;
};

}  // namespace some
