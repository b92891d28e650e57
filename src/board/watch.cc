#include "board/watch.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "board/own_files.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "runs/run.h"

namespace some {
namespace fs = std::filesystem;

struct Discovered {
  std::map<std::string, std::pair<std::string, std::string>> runs;  // id: folder and place
  std::vector<std::string> memories;
  std::vector<std::string> parents;  // of trash folders
  std::size_t looked = 0;
};

namespace {

constexpr std::size_t max_folders = 20000;

// True for folders that belong to a run or are shared by runs, and contain no runs.
bool is_part_of_a_run(const std::string& name) {
  static const std::set<std::string> parts = {"checkpoints", "keys", "cache", "inspect"};
  return name.starts_with('.') || parts.contains(name);
}

bool is_memory(const std::string& name) { return name == "memory.safetensors" || name.ends_with(".memory"); }

}  // namespace

std::string id_of(const std::string& folder) {
  std::error_code error;
  const fs::path whole = fs::canonical(folder, error);
  const std::string text = error ? folder : whole.string();
  return hex(hash_bytes(text.data(), text.size()));
}

Watch::Watch(WatchSettings settings, Tell tell, Tick tick)
    : settings_(std::move(settings)), tell_(std::move(tell)), tick_(std::move(tick)) {
  for (const std::string& folder : settings_.folders) {
    if (!folder_exists(folder))
      bad_input(Code::folder_not_found, "folder {} not found; pass a run folder or a folder of runs", folder);
  }
  thread_ = std::thread([this] { work(); });
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Symbolic links are not followed: their targets are outside the watched folders.
void Watch::look_into(const std::string& folder, const std::string& place, int depth, Discovered& found) const {
  if (++found.looked > max_folders || found.runs.size() >= settings_.max_runs) return;
  const bool is_run = is_file_not_link(RunPaths{folder}.config());
  if (is_run) found.runs.try_emplace(id_of(folder), folder, place);
  std::vector<std::string> names;
  try {
    names = list_folder(folder);
  } catch (const Error&) {
    return;  // removed meanwhile, or not readable
  }
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (is_memory(name) && is_file_not_link(path)) found.memories.push_back(path);
    if (name == trash_name) found.parents.push_back(folder);
    if (!is_run && depth < settings_.deepest && !is_part_of_a_run(name) && is_folder_not_link(path))
      look_into(path, place + "/" + name, depth + 1, found);
  }
}

void Watch::look_for_runs() {
  Discovered found;
  for (std::string folder : settings_.folders) {
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    look_into(folder, folder, 0, found);
  }
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, run] : runs_) {
      if (!found.runs.contains(id)) gone.push_back(id);
    }
    for (const std::string& id : gone) runs_.erase(id);
    for (const auto& [id, where] : found.runs) {
      if (!runs_.contains(id)) runs_[id] = std::make_shared<RunLog>(id, where.first, where.second);
    }
    memories_ = std::move(found.memories);
  }
  for (const std::string& id : gone) tell_({{"gone", id}});
}

void Watch::work() {
  using Clock = std::chrono::steady_clock;
  // Scanning thousands of folders takes time: the interval grows with the duration.
  Clock::time_point next{};
  for (;;) {
    if (const auto begin = Clock::now(); begin >= next) {
      look_for_runs();
      const auto end = Clock::now();
      next = end + std::max<Clock::duration>(std::chrono::milliseconds(500), 100 * (end - begin));
    }
    for (const auto& run : runs()) {
      if (run->poll()) tell_(run->news());
    }
    if (tick_) tick_();
    std::unique_lock lock(mutex_);
    if (!seen_all_) {
      seen_all_ = true;
      changed_.notify_all();
    }
    if (changed_.wait_for(lock, settings_.pause, [&] { return stop_; })) return;
  }
}

std::vector<std::shared_ptr<RunLog>> Watch::runs() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<RunLog>> out;
  for (const auto& [id, run] : runs_) out.push_back(run);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a->folder() < b->folder(); });
  return out;
}

std::shared_ptr<RunLog> Watch::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second;
}

std::vector<std::string> Watch::memories() const {
  const std::lock_guard lock(mutex_);
  return memories_;
}

std::vector<TrashedRun> Watch::trash() const {
  Discovered found;
  for (const std::string& folder : settings_.folders) look_into(folder, folder, 0, found);
  std::vector<TrashedRun> out;
  for (const std::string& parent : found.parents) {
    for (TrashedRun& one : list_trash(parent)) out.push_back(std::move(one));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.when > b.when; });
  return out;
}

bool Watch::is_root(const RunLog& run) const {
  return std::any_of(settings_.folders.begin(), settings_.folders.end(),
                     [&](const std::string& folder) { return id_of(folder) == run.id(); });
}

bool Watch::seen_all() const {
  const std::lock_guard lock(mutex_);
  return seen_all_;
}

void Watch::wait_until_seen() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return seen_all_ || stop_; });
}

}  // namespace some
