#include "core/files/folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "core/files/files.h"
#include "core/system_error.h"

namespace some {
namespace fs = std::filesystem;
namespace {

// Calls stat; false if `path` does not exist.
bool look_at(const std::string& path, struct stat& status) {
  // Other processes may create and remove the file between two calls, so inconsistent results are retried.
  for (int looks = 1; looks <= 1000; ++looks) {
    if (::stat(path.c_str(), &status) == 0) return true;
    // No file system has names of this length.
    if (errno == ENAMETOOLONG) return false;
    if (errno != ENOENT && errno != ENOTDIR)
      failed(Code::folder_unreadable, "cannot access {}: {}", path, last_reason());
    std::error_code no_link;
    const std::string target = fs::read_symlink(path, no_link).string();
    if (no_link == std::errc::no_such_file_or_directory || no_link == std::errc::not_a_directory) return false;
    if (!no_link && ::stat(path.c_str(), &status) != 0 && is_link(path))
      failed(Code::link_broken,
             "{} is a link to {}, which does not exist; restore the target (is a disk not mounted?) or remove the link",
             path, target);
  }
  failed(Code::folder_unreadable, "cannot access {}: it appears and disappears", path);
}

// True for NAME.tmp-PID-NUMBER, the form used by write_file_atomic.
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

// Removes a file that nobody has locked. Failure is not an error: the file simply stays.
void remove_if_abandoned(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  struct stat status {};
  const bool abandoned =
      ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && ::flock(file, LOCK_EX | LOCK_NB) == 0;
  if (abandoned) ::unlink(path.c_str());
  ::close(file);
}

}  // namespace

bool exists_path(const std::string& path) {
  struct stat status {};
  return look_at(path, status);
}

bool folder_exists(const std::string& path) {
  struct stat status {};
  return look_at(path, status) && S_ISDIR(status.st_mode);
}

bool file_exists(const std::string& path) {
  struct stat status {};
  return look_at(path, status) && S_ISREG(status.st_mode);
}

std::string file_stamp(const std::string& path) {
  struct stat status {};
  if (!exists_path(path) || ::stat(path.c_str(), &status) != 0) return {};
  return fmt::format("{} {} {} {}.{:09}", status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

bool is_link(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return S_ISLNK(status.st_mode);
  if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
    failed(Code::folder_unreadable, "cannot access {}: {}", path, last_reason());
  return false;
}

std::vector<std::string> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) failed(Code::folder_unreadable, "cannot read the folder {}: {}", path, last_reason());
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr && errno != 0)
      failed(Code::folder_unreadable, "cannot read the folder {}: {}", path, last_reason());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void make_folder(const std::string& path) {
  if (path.empty() || folder_exists(path)) return;
  const std::string parent = fs::path(path).parent_path().string();
  if (parent != path) make_folder(parent);
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    failed(Code::folder_unwritable, "cannot create the folder {}: {}", path, last_reason());
  if (!folder_exists(path))
    failed(Code::path_exists, "cannot create the folder {}: a file with this name exists", path);
  flush_folder(parent.empty() ? "." : parent);
}

std::string unwritable_reason(const std::string& folder) {
  try {
    make_folder(folder);
  } catch (const Error& error) {
    return error.what();
  }
  if (::faccessat(AT_FDCWD, folder.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) == 0) return "";
  return fmt::format("cannot write into the folder {}: {}", folder, last_reason());
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) failed(Code::file_unwritable, "cannot remove {}: {}", path, reason_of(error.value()));
}

void move_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    failed(Code::file_unwritable, "cannot rename {} to {}: {}", from, fs::path(to).filename().string(), last_reason());
}

void remove_folder(const std::string& path) {
  const std::string doomed = path + ".removing";
  remove_tree(doomed);
  move_path(path, doomed);
  remove_tree(doomed);
}

void remove_temporary_files(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    if (is_temporary_name(name)) remove_if_abandoned(folder + "/" + name);
  }
}

void write_output_file(const std::string& path, std::string_view contents) {
  write_output_file(path, [&](const ByteSink& sink) { sink(contents.data(), contents.size()); });
}

void remove_temporary_files_of(const std::string& path) {
  const fs::path name = fs::path(path).filename(), parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (folder_exists(folder)) {
    for (const std::string& other : list_folder(folder)) {
      if (is_temporary_name(other) && other.starts_with(name.string() + ".tmp-"))
        remove_if_abandoned(folder + "/" + other);
    }
  }
}

void write_output_file(const std::string& path, const std::function<void(const ByteSink&)>& produce) {
  remove_temporary_files_of(path);
  write_file_atomic(path, produce);
}

}  // namespace some
