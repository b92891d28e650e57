// How long nothing was heard or seen, told by one who looks every so often.
#pragma once

#include <chrono>

namespace some {

class Silence {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Silence(double every_seconds, Time now) : every_(every_seconds), since_(now), looked_(now) {}

  // At a look: whether there was a sign since the last one. How many seconds there has been none.
  double after_look(bool sign, Time now) {
    // One that was not scheduled itself could have noticed nothing, so such time does not count: a process that was
    // stopped would find, once it goes on, that nobody was heard of. What was silence before that still is.
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
