#include "base/folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/files.h"

namespace some {
namespace fs = std::filesystem;
namespace {

// Nothing: there is nothing at `path`.
bool look_at(const std::string& path, struct stat& status) {
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) failed("cannot look at {}: {}", path, std::strerror(errno));
  struct stat link {};
  if (::lstat(path.c_str(), &link) != 0) return false;
  std::error_code ignored;
  failed("{} is a link to {}, which is not there: bring it back (is a disk not mounted?) or remove the link", path,
         fs::read_symlink(path, ignored).string());
}

// NAME.tmp-PID-NUMBER, as write_file_atomic names them.
bool is_temporary_name(const std::string& name) {
  const std::size_t at = name.rfind(".tmp-");
  if (at == std::string::npos) return false;
  const std::string numbers = name.substr(at + 5);
  const std::size_t dash = numbers.find('-');
  const auto is_number = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  return dash != std::string::npos && is_number(numbers.substr(0, dash)) && is_number(numbers.substr(dash + 1));
}

// A writer takes its lock right after it made the file; until then the file is empty and new.
bool may_be_about_to_be_locked(const struct stat& status) {
  return status.st_size == 0 && std::time(nullptr) - status.st_mtime < 3;
}

}  // namespace

bool there_is(const std::string& path) {
  struct stat status {};
  return look_at(path, status);
}

bool there_is_folder(const std::string& path) {
  struct stat status {};
  return look_at(path, status) && S_ISDIR(status.st_mode);
}

std::vector<std::string> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) failed("cannot read the folder {}: {}", path, std::strerror(errno));
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr && errno != 0) failed("cannot read the folder {}: {}", path, std::strerror(errno));
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void make_folder(const std::string& path) {
  if (path.empty() || there_is_folder(path)) return;
  const std::string parent = fs::path(path).parent_path().string();
  if (parent != path) make_folder(parent);
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    failed("cannot make the folder {}: {}", path, std::strerror(errno));
  if (!there_is_folder(path)) failed("cannot make the folder {}: a file of this name is in the way", path);
  flush_folder(parent.empty() ? "." : parent);
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) failed("cannot remove {}: {}", path, error.message());
}

void move_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    failed("cannot rename {} to {}: {}", from, fs::path(to).filename().string(), std::strerror(errno));
}

void remove_folder(const std::string& path) {
  const std::string doomed = path + ".removing";
  remove_tree(doomed);
  move_path(path, doomed);
  remove_tree(doomed);
}

void remove_half_written_files(const std::string& folder, Owned owned) {
  for (const std::string& name : list_folder(folder)) {
    if (!is_temporary_name(name)) continue;
    const std::string path = folder + "/" + name;
    // A file that stays is no reason not to go on: nothing below is an error.
    const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    struct stat status {};
    const bool abandoned = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                           ::flock(file, LOCK_EX | LOCK_NB) == 0 &&
                           (owned == Owned::yes || !may_be_about_to_be_locked(status));
    if (abandoned) ::unlink(path.c_str());
    ::close(file);
  }
}

}  // namespace some
