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

}  // namespace

nlohmann::json change_labels(const Watch& watch, const nlohmann::json& body) {
  const RunLabels labels = parse_run_labels(body, origin);
  run_of(watch, body)->set_labels(labels);
  return {{"name", labels.name}, {"tags", labels.tags}, {"note", labels.note}};
}

nlohmann::json delete_run(const Watch& watch, const nlohmann::json& body) {
  const auto run = run_of(watch, body);
  if (watch.is_root(*run))
    bad_input(
        Code::request_forbidden,
        "this run is itself the folder that the board watches; open the board on the folder above it to delete it");
  const TrashedRun trashed = move_to_trash(run->folder());
  return {{"entry", id_of(trashed.folder)}, {"name", valid_text(trashed.name)}};
}

nlohmann::json restore_run(const Watch& watch, const nlohmann::json& body) {
  const std::string entry = JsonObject(body, origin).need<std::string>("entry");
  const std::vector<TrashedRun> all = watch.trash();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return id_of(one.folder) == entry; });
  if (found == all.end()) bad_input(Code::run_not_found, "this run is no longer in the trash");
  restore_from_trash(found->folder);
  return {{"name", valid_text(found->name)}};
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
