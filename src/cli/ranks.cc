#include "cli/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "cli/terminal.h"
#include "core/error.h"
#include "core/escape.h"

namespace some {
namespace {

std::optional<Group> joined;

// What goes wrong everywhere is told once: the lower ranks speak first, and end the others, which takes a moment.
void let_lower_ranks_speak(int rank) {
  if (rank > 0)
    std::this_thread::sleep_for(std::chrono::seconds(2) + std::chrono::milliseconds(250) * std::min(rank, 20));
}

}  // namespace

const Group& join_ranks() {
  if (joined) return *joined;
  joined = open_group([](const std::string& line) { say_line("some: {}", line); });
  return *joined;
}

void leave_ranks() {
  if (joined) joined->finalize();
}

int fail(int code, const std::string& line, Whose whose) {
  const int rank = rank_environment().rank;
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
