// A file of lines that grows while it is looked at: each line is read once.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace some {

// What is at a path itself, not where a link there leads.
bool is_own_file(const std::string& path);
bool is_own_folder(const std::string& path);

class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}
  struct Use {
    std::function<void(std::string_view line, std::uint64_t offset)> line;
    std::function<void()> anew;  // what was read before does not stand any more: the file was cut or replaced
  };
  // Whether anything was there to be told. A link, a pipe or a device is no file: as if it were not there.
  bool poll(const Use& use);

 private:
  bool forget(const Use& use);
  bool still_there(int file) const;
  std::string path_;
  struct stat seen_ {};
  bool known_ = false;
  std::uint64_t offset_ = 0;  // behind the last whole line
  std::string mark_;          // the last bytes before it: a file that was cut and has grown again has others
};

}  // namespace some
