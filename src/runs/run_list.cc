#include "runs/run_list.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json.h"
#include "recipe/scale.h"
#include "runs/checkpoint.h"
#include "runs/run.h"
#include "runs/run_lock.h"

namespace some {
namespace fs = std::filesystem;
namespace {

std::string identity_file(const std::string& folder) { return (fs::path(folder) / "lab.json").string(); }

// Parses all of `text` as a number.
template <typename Number>
std::optional<Number> whole_number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string run_name(const LabIdentity& identity) {
  const std::string name = scaled_name(identity.recipe, identity.scale);
  return identity.seed == 0 ? name : fmt::format("{}-seed{}", name, identity.seed);
}

LabIdentity parse_run_name(const std::string& name) {
  LabIdentity identity;
  identity.recipe = name;
  if (const std::size_t at = identity.recipe.rfind("-seed"); at != std::string::npos) {
    if (const auto seed = whole_number<int>(identity.recipe.substr(at + 5)); seed && *seed > 0) {
      identity.seed = *seed;
      identity.recipe.resize(at);
    }
  }
  if (const std::size_t at = identity.recipe.rfind('@'); at != std::string::npos) {
    if (const auto scale = whole_number<double>(identity.recipe.substr(at + 1)); scale && *scale > 0 && *scale < 1) {
      identity.scale = *scale;
      identity.recipe.resize(at);
    }
  }
  return identity;
}

RunState run_state(const std::string& folder) {
  // The folder first: paths below a dangling link only appear absent.
  if (!exists_path(folder) || !exists_path(RunPaths{folder}.config())) return RunState::absent;
  // While a process is training, its checkpoints come and go, so nothing else is checked.
  if (run_is_locked(folder)) return RunState::running;
  return run_is_finished(folder) ? RunState::finished : RunState::interrupted;
}

std::string name_of(RunState state) {
  switch (state) {
    case RunState::absent: return "not begun";
    case RunState::running: return "running";
    case RunState::interrupted: return "interrupted";
    case RunState::finished: return "done";
  }
  return "";
}

std::string RunListEntry::state_text() const {
  return state == RunState::interrupted && !failure.empty() ? "failed" : name_of(state);
}

std::optional<RunListEntry> find_run(const std::string& folder, const Log& log) {
  RunListEntry run;
  run.folder = folder;
  while (run.folder.size() > 1 && run.folder.back() == '/') run.folder.pop_back();
  if (!exists_path(RunPaths{run.folder}.config())) return std::nullopt;
  run.name = fs::path(run.folder).lexically_normal().filename().string();
  run.identity = parse_run_name(run.name);
  if (exists_path(identity_file(run.folder))) {
    try {
      const std::string path = identity_file(run.folder);
      const JsonObject stored(parse_json(read_file(path), path), path);
      LabIdentity identity;
      identity.recipe = stored.need<std::string>("recipe");
      identity.scale = stored.need<double>("scale");
      identity.seed = stored.need<int>("seed");
      identity.builtin = stored.need<bool>("builtin");
      run.failure = stored.get<std::string>("failure", "");
      run.identity = identity;
      run.stored = true;
    } catch (const Error& error) {
      log.warning(Code::run_unlisted, "{}; the folder's name is used instead", error.what());
    }
  }
  try {
    run.state = run_state(run.folder);
    run.saved_step = marked_latest(run.folder);
  } catch (const Error& error) {
    log.warning(Code::checkpoint_unreadable, "{}: cannot read the last checkpoint: {}", run.folder, error.what());
    run.state = RunState::interrupted;
  }
  return run;
}

std::vector<RunListEntry> find_runs(const std::string& folder, const Log& log) {
  std::vector<RunListEntry> runs;
  if (!exists_path(folder)) return runs;
  for (const std::string& name : list_folder(folder)) {
    const std::string path = (fs::path(folder) / name).string();
    try {
      if (!folder_exists(path)) continue;
      if (auto run = find_run(path, log)) runs.push_back(std::move(*run));
    } catch (const Error& error) {
      log.warning(Code::run_unlisted, "{} omitted: {}", path, error.what());
    }
  }
  std::sort(runs.begin(), runs.end(), [](const RunListEntry& a, const RunListEntry& b) { return a.name < b.name; });
  return runs;
}

void write_identity(const std::string& folder, const LabIdentity& identity, const std::string& failure) {
  nlohmann::json stored{
      {"recipe", identity.recipe}, {"scale", identity.scale}, {"seed", identity.seed}, {"builtin", identity.builtin}};
  if (!failure.empty()) stored["failure"] = failure;
  write_output_file(identity_file(folder),
                    stored.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace some
