// Signs of life of this process. Ranks wait for each other, and one whose main thread goes round in circles would keep
// all of them waiting: so work shows that it goes on, and where it does not for too long the rank ends all of them
// (comm/group_open.cc). A rank is a process, so there is one count of them.
#pragma once

#include <cstdint>

namespace some {

// Work goes on. Threads that share work say it (core/threads.h), so does whoever waits for another rank, and whoever
// computes for long without either. From any thread; it costs nothing to speak of.
void beat();
std::int64_t heartbeats();  // so far

// While one lives silence is no bad sign: others have the word (a slow disk).
class Excused {
 public:
  Excused();
  ~Excused();
  Excused(const Excused&) = delete;
  Excused& operator=(const Excused&) = delete;
};
bool excused();

}  // namespace some
