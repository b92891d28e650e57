// Several processes, one command.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>
#include <thread>

#include "cli/commands.h"
#include "core/error.h"
#include "core/escape.h"

namespace some {
namespace {

std::optional<Group> joined;
std::atomic<bool> meeting = false;  // with ranks that nobody started together, as mpirun would

// What goes wrong everywhere is told once: the lower ranks speak first, and end the others, which takes a moment.
void let_lower_ranks_speak(int rank) {
  if (rank > 0)
    std::this_thread::sleep_for(std::chrono::seconds(2) + std::chrono::milliseconds(250) * std::min(rank, 20));
}

// Where the environment makes no sense each process is on its own, and says so itself.
int rank_to_speak_as() {
  try {
    return rank_environment().rank;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

bool works_on_ranks(const std::vector<std::string>& words) {
  if (words.empty()) return false;
  if (words[0] == "lab") return words.size() > 1 && words[1] == "run";
  static const std::set<std::string> known{"train", "bench", "eval", "read", "verify"};
  return known.contains(words[0]);
}

const Group& join_ranks() {
  if (joined) return *joined;
  meeting = !rank_environment().meeting.empty();
  joined = open_group([](const std::string& line) { say_line("some: {}", line); });
  meeting = false;
  return *joined;
}

bool is_meeting_ranks() { return meeting; }

void leave_ranks() {
  if (joined) joined->leave();
}

int fail(int code, const std::string& line, Whose whose) {
  const int rank = rank_to_speak_as();
  if (!joined && meeting) {
    // Why it does not meet the others only this rank can tell.
    say_line("some: rank {}: {}", rank, line);
    return code;
  }
  let_lower_ranks_speak(rank);
  if (!joined) {
    // Every rank was told the same on its command line.
    if (rank == 0) say_line("some: {}", line);
    return code;
  }
  say_line("some: {}{}", joined->alone() || whose == Whose::all_ranks ? "" : joined->name() + ": ", line);
  if (!joined->alone()) joined->abort_all(code);
  return code;
}

}  // namespace some
