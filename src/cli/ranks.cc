// Several processes, one command.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>
#include <thread>

#include "cli/commands.h"
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

bool works_on_ranks(const std::vector<std::string>& words) {
  if (words.empty()) return false;
  if (words[0] == "lab") return words.size() > 1 && words[1] == "run";
  static const std::set<std::string> known{"train", "bench", "eval", "read", "verify"};
  return known.contains(words[0]);
}

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
