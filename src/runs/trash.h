// Deleted runs. A run is moved to PARENT/.trash/TIME/NAME on the same disk, and can be moved back. The program never
// empties the trash, which is an ordinary folder.
#pragma once

#include <string>
#include <vector>

namespace some {

constexpr const char* trash_name = ".trash";

struct TrashedRun {
  std::string folder;  // current folder
  std::string name;
  std::string when;      // UTC, as in "2026-11-19 20:15:00"
  std::string original;  // previous folder
};

// Returns the run's new place. Throws (bad_input) for a run that is training, a folder that is not a run, and a link.
TrashedRun move_to_trash(const std::string& run);
// Moves a run back; throws (bad_input) if its place is taken or it is not in a trash folder.
std::string restore_from_trash(const std::string& folder);
// Returns the runs in `parent`/.trash, the last deleted one first, without links.
std::vector<TrashedRun> list_trash(const std::string& parent);

}  // namespace some
