#include "board/own_files.h"

#include <sys/stat.h>

namespace some {

bool is_file_not_link(const std::string& path) {
  struct stat now {};
  return ::lstat(path.c_str(), &now) == 0 && S_ISREG(now.st_mode);
}

bool is_folder_not_link(const std::string& path) {
  struct stat now {};
  return ::lstat(path.c_str(), &now) == 0 && S_ISDIR(now.st_mode);
}

}  // namespace some
