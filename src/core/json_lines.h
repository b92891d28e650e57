// The reader of files with one JSON object per line (metrics.jsonl, timing.jsonl, ...), whole or as they grow. A line
// that is cut off or is not a JSON object is damaged: it is left out, the other lines count.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"

namespace some {

// Reads each line of a growing file once.
class JsonLines {
 public:
  explicit JsonLines(std::string path) : path_(std::move(path)) {}
  struct Use {
    std::function<void(std::string_view line, std::uint64_t offset)> line;  // whole, but it may be damaged
    std::function<void()> restart;  // the file was cut or replaced: lines read before are no longer valid
  };
  // True if there was anything to report. A link, a pipe or a device counts as no file.
  bool poll(const Use& use);

 private:
  bool forget(const Use& use);
  bool still_there(int file) const;
  std::string path_;
  struct stat seen_ {};
  bool known_ = false;
  std::uint64_t offset_ = 0;  // after the last whole line
  std::string mark_;          // the last bytes before it: a file that was cut and has grown again has others
};

// Reads a file from begin to end; nothing happens if there is none. A damaged line, and one that `use` refuses with
// bad_input, is passed to `damaged` as the error that says what is wrong with it.
void for_each_json_line(const std::string& path, const std::function<void(const JsonObject& line)>& use,
                        const std::function<void(const Error& error)>& damaged = nullptr);

}  // namespace some
