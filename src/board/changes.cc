#include "board/changes.h"

#include <algorithm>

#include "core/error.h"
#include "core/files/json.h"
#include "plot/escape_html.h"
#include "runs/run_labels.h"
#include "runs/trash.h"

namespace some {
namespace {

constexpr const char* origin = "request";

std::shared_ptr<RunLog> run_of(const Watch& watch, const nlohmann::json& body) {
  const auto run = watch.find(JsonObject(body, origin).need<std::string>("run"));
  if (!run) bad_input(Code::run_not_found, "run not found; it may have been moved or deleted");
  return run;
}

constexpr std::size_t max_runs_changed = 2000;

std::vector<std::string> list_of(const nlohmann::json& body, const char* name) {
  const auto list = JsonObject(body, origin).need<std::vector<std::string>>(name);
  if (list.empty() || list.size() > max_runs_changed)
    bad_input(Code::request_invalid, "{}: {}: must be a list of 1 to {}", origin, name, max_runs_changed);
  return list;
}

// Applies a change to each run of a request and returns those that failed: [{name, message}]. The failure of a single
// run is that of the request.
template <typename Change>
nlohmann::json each_run(const Watch& watch, const nlohmann::json& body, const Change& change) {
  nlohmann::json failed = nlohmann::json::array();
  const auto ids = list_of(body, "runs");
  for (const std::string& id : ids) {
    const auto run = watch.find(id);
    try {
      if (!run) bad_input(Code::run_not_found, "run not found; it may have been moved or deleted");
      change(run);
    } catch (const Error& error) {
      if (ids.size() == 1) throw;
      failed.push_back({{"name", run ? run->summary().at("name") : nlohmann::json("")}, {"message", error.what()}});
    }
  }
  return failed;
}

}  // namespace

nlohmann::json change_labels(const Watch& watch, const nlohmann::json& body) {
  const RunLabels labels = parse_run_labels(body, origin);
  run_of(watch, body)->set_labels(labels);
  return {{"name", labels.name}, {"tags", labels.tags}, {"note", labels.note}};
}

nlohmann::json change_many_labels(const Watch& watch, const nlohmann::json& body) {
  const JsonObject all(body, origin);
  // Checks the words before any run changes.
  const RunLabels more = parse_run_labels(
      {{"tags", all.get<std::vector<std::string>>("add", {})}, {"note", all.get<std::string>("note", "")}}, origin);
  const auto removed = all.get<std::vector<std::string>>("remove", {});
  std::size_t changed = 0;
  nlohmann::json failed = each_run(watch, body, [&](const std::shared_ptr<RunLog>& run) {
    RunLabels labels = run->labels();
    std::erase_if(labels.tags, [&](const auto& tag) { return std::ranges::count(removed, tag) > 0; });
    labels.tags.insert(labels.tags.end(), more.tags.begin(), more.tags.end());
    if (!more.note.empty()) labels.note += (labels.note.empty() ? "" : "\n") + more.note;
    run->set_labels(parse_run_labels({{"name", labels.name}, {"tags", labels.tags}, {"note", labels.note}}, origin));
    changed += 1;
  });
  return {{"changed", changed}, {"failed", std::move(failed)}};
}

nlohmann::json delete_runs(const Watch& watch, const nlohmann::json& body) {
  nlohmann::json entries = nlohmann::json::array();
  nlohmann::json failed = each_run(watch, body, [&](const std::shared_ptr<RunLog>& run) {
    if (watch.is_root(*run))
      bad_input(
          Code::request_forbidden,
          "this run is itself the folder that the board watches; open the board on the folder above it to delete it");
    const TrashedRun trashed = move_to_trash(run->folder());
    entries.push_back({{"entry", id_of(trashed.folder)}, {"name", valid_text(trashed.name)}});
  });
  return {{"entries", std::move(entries)}, {"failed", std::move(failed)}};
}

nlohmann::json restore_runs(const Watch& watch, const nlohmann::json& body) {
  const auto entries = list_of(body, "entries");
  const std::vector<TrashedRun> all = watch.trash();
  nlohmann::json names = nlohmann::json::array(), failed = nlohmann::json::array();
  for (const std::string& entry : entries) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return id_of(one.folder) == entry; });
    const std::string name = found == all.end() ? std::string() : valid_text(found->name);
    try {
      if (found == all.end()) bad_input(Code::run_not_found, "this run is no longer in the trash");
      restore_from_trash(found->folder);
      names.push_back(name);
    } catch (const Error& error) {
      if (entries.size() == 1) throw;
      failed.push_back({{"name", name}, {"message", error.what()}});
    }
  }
  return {{"names", std::move(names)}, {"failed", std::move(failed)}};
}

nlohmann::json trash(const Watch& watch) {
  constexpr std::size_t most = 500;
  nlohmann::json runs = nlohmann::json::array();
  for (const TrashedRun& one : watch.trash()) {
    if (runs.size() == most) break;
    runs.push_back({{"entry", id_of(one.folder)},
                    {"name", valid_text(one.name)},
                    {"place", valid_text(one.original)},
                    {"when", one.when}});
  }
  return {{"runs", runs}};
}

}  // namespace some
