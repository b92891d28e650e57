#include "board/causal.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/ablate.h"
#include "analysis/knock_outs/ablate_rules.h"
#include "analysis/knock_outs/ablate_slots.h"
#include "analysis/route_match.h"
#include "core/error.h"
#include "core/files/json.h"
#include "train/remember.h"

namespace some {
namespace {

constexpr std::int64_t max_documents = 1000;
constexpr int max_shuffles = 10000;
constexpr auto between_progress = std::chrono::milliseconds(200);

std::shared_ptr<RunLog> run_of(const Watch& watch, const JsonObject& all, const std::string& key) {
  const auto run = watch.find(all.need<std::string>(key));
  if (!run) bad_input(Code::run_not_found, "run not found; it may have been moved or deleted");
  return run;
}

}  // namespace

void answer_ablate(const Watch& watch, GenerationService& models, const Request& request, const Answer& answer) {
  const JsonObject all(parse_json(request.body, "request"), "request");
  AblateOptions options;
  options.max_documents = all.get<std::int64_t>("documents", 20, 1, max_documents);
  options.shuffles = all.get<int>("shuffles", 1000, 1, max_shuffles);
  const std::vector<std::string> units = ablate_units();
  const std::string name = all.get<std::string>("unit", units[0]);
  const auto unit = std::find(units.begin(), units.end(), name);
  if (unit == units.end() && name != "rule" && name != "memory")
    bad_input(Code::request_invalid, "{}: must be one of {}, rule, memory", "unit", fmt::join(units, ", "));
  if (unit != units.end()) options.unit = static_cast<AblateUnit>(unit - units.begin());
  if (all.has("layer")) options.layer = all.need<int>("layer", 0, 4095);
  const auto run = run_of(watch, all, "run");
  const std::string memory = run->memory();
  if (name == "memory" && memory.empty())
    bad_input(Code::memory_missing, "this run has no memory; 'some read' creates one");
  models.experiment({run}, answer.stream("application/x-ndjson"), [=](const auto& opened, const auto& talk) {
    auto told = std::chrono::steady_clock::now();
    const auto progress = [&](int done, int total) {
      if (const auto now = std::chrono::steady_clock::now(); done == 1 || now - told >= between_progress) {
        talk.send({{"kind", "progress"}, {"done", done}, {"total", total}});
        told = now;
      }
    };
    const auto with = [&](auto how) {
      how.max_documents = options.max_documents;
      how.progress = progress;
      how.stop = talk.stopped;
      return how;
    };
    nlohmann::json report;
    if (name == "memory") {
      Memory slots = open_memory(*opened[0], memory);
      report = to_json(ablate_slots(*opened[0], slots, with(AblateSlotsOptions{})));
    } else if (name == "rule") {
      report = to_json(ablate_rules(*opened[0], with(AblateRulesOptions{})));
    } else {
      report = to_json(ablate(*opened[0], with(options)));
    }
    report["unit"] = name;
    report.erase("run");
    return report;
  });
}

void answer_routes(const Watch& watch, GenerationService& models, const Request& request, const Answer& answer) {
  const JsonObject all(parse_json(request.body, "request"), "request");
  RouteMatchOptions options;
  options.max_documents = all.get<std::int64_t>("documents", 50, 1, max_documents);
  options.shuffles = all.get<int>("shuffles", 20, 1, 1000);
  const auto first = run_of(watch, all, "first"), second = run_of(watch, all, "second");
  if (first->id() == second->id()) bad_input(Code::request_invalid, "{}: must be two different runs", "second");
  models.experiment({first, second}, answer.stream("application/x-ndjson"), [options](const auto& opened, const auto&) {
    nlohmann::json report = to_json(match_routes(*opened[0], *opened[1], options));
    report.erase("first");
    report.erase("second");
    return report;
  });
}

}  // namespace some
