#include "runs/new_folder.h"

#include <filesystem>

#include "core/error.h"
#include "core/files/folders.h"

namespace some {
namespace fs = std::filesystem;
namespace {

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

AtomicFolder::AtomicFolder(const std::string& flag, const std::string& out, std::vector<std::string> ours)
    : flag_(flag), out_(without_slash(out)), folder_(out_ + ".writing"), ours_(std::move(ours)) {
  check_free();
  lock_ = std::make_unique<RunLock>(folder_);
  for (const std::string& name : list_folder(folder_)) check_ours(name);
  for (const std::string& name : list_folder(folder_)) remove_tree(folder_ + "/" + name);
}

AtomicFolder::~AtomicFolder() {
  if (done_) return;
  std::error_code ignored;  // the next attempt removes leftovers
  fs::remove_all(folder_, ignored);
}

void AtomicFolder::finish() {
  check_free();
  move_path(folder_, out_);
  done_ = true;
  const std::string parent = fs::path(out_).parent_path().string();
  flush_folder(parent.empty() ? "." : parent);
}

void AtomicFolder::check_free() const {
  if (exists_path(out_) && (!folder_exists(out_) || !list_folder(out_).empty()))
    bad_input(Code::path_exists, "{} {}: already exists; choose a new folder", flag_, out_);
}

// Throws if the folder contains a file that was not written here, so that nothing else is removed.
void AtomicFolder::check_ours(const std::string& name) const {
  for (const std::string& ours : ours_) {
    const bool beginning = ours.back() == '*';
    if (name == ours || name.starts_with(beginning ? ours.substr(0, ours.size() - 1) : ours + ".tmp-")) return;
  }
  bad_input(Code::path_exists, "{} {}: {}/{} was not written by this command; move it elsewhere", flag_, out_, folder_,
            name);
}

}  // namespace some
