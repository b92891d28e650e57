#include "runs/trash.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/files/folders.h"
#include "runs/run.h"
#include "runs/run_lock.h"

namespace some {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t stamp_size = 15;  // "20261119T201500"

std::string plain_path(const std::string& path) {
  fs::path whole = fs::path(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return whole.string();
}

// Returns "2026-11-19 20:15:00" for "20261119T201500-2"; empty if the name is not that of a deletion.
std::optional<std::string> time_of(const std::string& stamp) {
  if (stamp.size() < stamp_size || stamp[8] != 'T') return std::nullopt;
  for (std::size_t i = 0; i < stamp_size; ++i) {
    if (i != 8 && (stamp[i] < '0' || stamp[i] > '9')) return std::nullopt;
  }
  const auto part = [&](std::size_t from, std::size_t count) { return stamp.substr(from, count); };
  return fmt::format("{}-{}-{} {}:{}:{}", part(0, 4), part(4, 2), part(6, 2), part(9, 2), part(11, 2), part(13, 2));
}

bool is_plain_folder(const std::string& path) { return folder_exists(path) && !is_link(path); }

// Removes the folder of a deletion, and the trash folder, if they are empty.
void remove_if_empty(const fs::path& deletion) {
  ::rmdir(deletion.c_str());
  ::rmdir(deletion.parent_path().c_str());
}

}  // namespace

TrashedRun move_to_trash(const std::string& run) {
  const fs::path folder = plain_path(run), parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  if (!is_plain_folder(folder.string()) || !file_exists(RunPaths{folder.string()}.config()))
    bad_input(Code::run_not_found, "{} is not a run folder; nothing was deleted", folder.string());
  const RunLock lock(folder.string());  // rejects a run in training, and prevents one from starting
  const fs::path trash = parent / trash_name;
  if (is_link(trash.string()))
    bad_input(Code::link_broken, "{} is a link; replace it with a folder, then delete the run", trash.string());
  const std::string stamp = fmt::format("{:%Y%m%dT%H%M%S}", fmt::gmtime(std::time(nullptr)));
  fs::path deletion = trash / stamp;
  for (int more = 2; exists_path(deletion.string()); ++more) deletion = trash / fmt::format("{}-{}", stamp, more);
  make_folder(deletion.string());
  const fs::path to = deletion / folder.filename();
  try {
    move_path(folder.string(), to.string());
  } catch (const Error&) {
    remove_if_empty(deletion);
    throw;
  }
  flush_folder(deletion.string());
  flush_folder(parent.string());
  return {to.string(), folder.filename().string(), *time_of(stamp), folder.string()};
}

std::string restore_from_trash(const std::string& folder) {
  const fs::path from = plain_path(folder), deletion = from.parent_path(), trash = deletion.parent_path();
  if (trash.filename() != trash_name || !time_of(deletion.filename().string()) || !is_plain_folder(from.string()))
    bad_input(Code::run_not_found, "{} is not a deleted run", from.string());
  const fs::path parent = trash.has_parent_path() ? trash.parent_path() : fs::path("."), to = parent / from.filename();
  if (exists_path(to.string()))
    bad_input(Code::run_exists, "{} exists again; rename that folder, then restore the run", to.string());
  move_path(from.string(), to.string());
  flush_folder(parent.string());
  remove_if_empty(deletion);
  return to.string();
}

std::vector<TrashedRun> list_trash(const std::string& parent) {
  std::vector<TrashedRun> out;
  const std::string trash = parent + "/" + trash_name;
  if (is_link(trash) || !folder_exists(trash)) return out;
  for (const std::string& stamp : list_folder(trash)) {
    const auto when = time_of(stamp);
    const std::string deletion = trash + "/" + stamp;
    if (!when || !is_plain_folder(deletion)) continue;
    for (const std::string& name : list_folder(deletion)) {
      const std::string folder = deletion + "/" + name;
      if (is_plain_folder(folder)) out.push_back({folder, name, *when, parent + "/" + name});
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.when > b.when; });
  return out;
}

}  // namespace some
