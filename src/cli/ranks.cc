#include "cli/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "cli/terminal.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/files/json.h"

namespace some {
namespace {

std::optional<Group> joined;

// Delays the message of higher ranks so that a failure common to all ranks is reported once: lower ranks print first
// and then abort the others, which takes a moment.
void let_lower_ranks_speak(int rank) {
  if (rank > 0)
    std::this_thread::sleep_for(std::chrono::seconds(2) + std::chrono::milliseconds(250) * std::min(rank, 20));
}

}  // namespace

const Group& join_ranks() {
  if (joined) return *joined;
  joined = open_group(
      [](const std::string& line) { print_line("some: error[{}]: {}", name_of(Code::ranks_unreachable), line); });
  return *joined;
}

void leave_ranks() {
  if (joined) joined->finalize();
}

bool errors_as_json = false;

int fail(const Error& error, FailureScope whose) {
  const int code = error.fault() == Fault::input ? 2 : 1;
  const auto tell = [&](const std::string& speaker) {
    print_line("some: {}error[{}]: {}", speaker, name_of(error.code()), error.what());
    if (!errors_as_json) return;
    const nlohmann::json told{{"error", json_of(error)}};
    fmt::print("{}\n", told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);  // flush now: aborting the other ranks also ends this one immediately
  };
  const int rank = rank_environment().rank;
  let_lower_ranks_speak(rank);
  if (!joined) {
    // All ranks parsed the same command line, so only rank 0 reports.
    if (rank == 0) tell("");
    return code;
  }
  tell(joined->alone() || whose == FailureScope::all_ranks ? "" : joined->name() + ": ");
  if (!joined->alone()) joined->abort_all(code);
  return code;
}

}  // namespace some
