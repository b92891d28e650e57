// Reader of files with one JSON object per line (metrics.jsonl, timing.jsonl, ...), complete or still growing. A line
// that is cut off or is not a JSON object is damaged: it is skipped, and all other lines are used.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/files/json.h"

namespace some {

// Reads each line of a growing file once.
class JsonLines {
 public:
  explicit JsonLines(std::string path) : path_(std::move(path)) {}
  struct Use {
    std::function<void(std::string_view line, std::uint64_t offset)> line;  // complete, but possibly damaged
    std::function<void()> restart;  // the file was truncated or replaced: lines read before are no longer valid
  };
  // Reports new lines. True if there was anything to report. Links, pipes and devices are treated as missing.
  bool poll(const Use& use);

 private:
  bool forget(const Use& use);
  bool tail_unchanged(int file) const;
  std::string path_;
  struct stat seen_ {};
  bool known_ = false;
  std::uint64_t offset_ = 0;  // after the last whole line
  std::string mark_;  // the last bytes before offset_, which differ if the file was truncated and has grown again
};

// Reads a whole file; does nothing if it does not exist. For a damaged line, and for a line that `use` rejects with
// bad_input, the error is passed to `damaged`.
void for_each_json_line(const std::string& path, const std::function<void(const JsonObject& line)>& use,
                        const std::function<void(const Error& error)>& damaged = nullptr);

}  // namespace some
