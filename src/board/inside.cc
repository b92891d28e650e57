#include "board/inside.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/pages/key_charts.h"
#include "board/own_files.h"
#include "core/error.h"
#include "core/threads.h"
#include "plot/projection.h"
#include "runs/checkpoint.h"

namespace some {
namespace {

constexpr std::size_t max_moments = 200, max_experts_shown = 512, max_keys_of_tsne = 400;
constexpr std::size_t max_positions_read = 400000;  // limits the values in all positions of a map

std::shared_ptr<RunLog> one_run(const Watch& watch, const Request& request) {
  const auto runs = requested_runs(watch, request);
  if (runs.size() != 1) bad_input(Code::request_invalid, "{}: must be the number of one run", "runs");
  return runs.front();
}

int layer_of(const RunLog& run, const Request& request) {
  if (run.layers() == 0) bad_input(Code::experts_missing, "this run has no layers with experts");
  const double layer = number_of(request, "layer", 0, 0, run.layers() - 1);
  if (layer != std::floor(layer)) bad_input(Code::request_invalid, "{}: must be an integer", "layer");
  return static_cast<int>(layer);
}

// Returns the load. Runs of older versions have no load.jsonl: the usage saved with their key positions is used
// instead.
std::vector<RunLog::Load> load_of(const RunLog& run, int layer) {
  std::vector<RunLog::Load> moments = run.load(layer);
  if (!moments.empty() || !is_folder_not_link(run.folder() + "/keys")) return moments;
  for (const KeyPositions& one : read_key_positions(run.folder(), run.run_id(), layer, max_moments)) {
    const double sum = std::accumulate(one.usage.begin(), one.usage.end(), 0.0);
    RunLog::Load moment{static_cast<double>(one.step), {}};
    for (const double usage : one.usage)
      moment.of_expert.push_back(static_cast<float>(sum > 0 ? usage * static_cast<double>(one.usage.size()) / sum : 0));
    moments.push_back(std::move(moment));
  }
  return moments;
}

// True if no symbolic link leads a reader of key positions out of the run.
bool keys_are_own(const RunLog& run) {
  if (!is_folder_not_link(run.folder() + "/keys")) return false;
  for (const CheckpointName& one : list_key_positions(run.folder())) {
    if (!is_file_not_link(one.folder)) return false;
  }
  return true;
}

}  // namespace

std::string layer_curves(const Watch& watch, const Request& request) {
  const auto run = one_run(watch, request);
  const auto axis = x_axis(request.value("x"));
  if (!axis) bad_input(Code::request_invalid, "{}: must be step, tokens, time, elapsed, clock or a metric", "x");
  const std::string metric = request.value("metric");
  const std::size_t dot = std::min(metric.find('.'), metric.size());
  std::string out = fmt::format("{{\"layers\":[");
  for (int layer = 0; layer < run->layers(); ++layer) {
    const std::string name =
        fmt::format("{}.layers.{}.{}", metric.substr(0, dot), layer, metric.substr(std::min(metric.size(), dot + 1)));
    if (layer > 0) out += ',';
    append_points(out, downsampled(run->curve(name, *axis, {}), 150));
  }
  return out + "]}";
}

std::string expert_load(const Watch& watch, const Request& request) {
  const auto run = one_run(watch, request);
  const std::vector<RunLog::Load> moments = load_of(*run, layer_of(*run, request));
  std::string out = "{\"steps\":[", rows;
  std::vector<int> experts;
  if (!moments.empty()) {
    // Shows the experts of a very large library that are busiest at the end, sorted by number.
    const std::vector<float>& last = moments.back().of_expert;
    experts.resize(last.size());
    std::iota(experts.begin(), experts.end(), 0);
    if (experts.size() > max_experts_shown) {
      std::stable_sort(experts.begin(), experts.end(), [&](int a, int b) {
        return last[static_cast<std::size_t>(a)] > last[static_cast<std::size_t>(b)];
      });
      experts.resize(max_experts_shown);
      std::sort(experts.begin(), experts.end());
    }
  }
  const std::size_t shown = std::min(max_moments, moments.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const RunLog::Load& one = moments[shown == 1 ? 0 : i * (moments.size() - 1) / (shown - 1)];
    fmt::format_to(std::back_inserter(out), "{}{}", i > 0 ? "," : "", one.step);
    rows += i > 0 ? ",[" : "[";
    for (const int expert : experts) {
      const auto place = static_cast<std::size_t>(expert);
      const double share = place < one.of_expert.size() ? static_cast<double>(one.of_expert[place]) : 0.0;
      fmt::format_to(std::back_inserter(rows), "{},", std::llround(100 * std::clamp(share, 0.0, 1e6)));
    }
    if (rows.back() == ',') rows.pop_back();
    rows += ']';
  }
  return out + fmt::format("],\"experts\":[{}],\"rows\":[{}]}}", fmt::join(experts, ","), rows);
}

std::string chosen_together(const Watch& watch, const Request& request) {
  const auto run = one_run(watch, request);
  const auto layer = static_cast<std::size_t>(layer_of(*run, request));
  const std::vector<LinePlace> all = run->evaluations();
  nlohmann::json steps = nlohmann::json::array(), sets = nlohmann::json::array();
  for (const LinePlace& one : all) steps.push_back(one.step);
  const double wanted = number_of(request, "at", all.empty() ? 0 : static_cast<double>(all.back().step), 0, 1e15);
  for (const LinePlace& one : all) {
    if (static_cast<double>(one.step) != wanted) continue;
    const nlohmann::json line = run->evaluation(one);
    if (!line.is_object() || !line.contains("layers") || !line["layers"].is_array()) continue;
    if (line["layers"].size() <= layer || !line["layers"][layer].is_object()) continue;
    sets = line["layers"][layer].value("cliques", nlohmann::json::array());
  }
  return nlohmann::json{{"steps", steps}, {"experts", run->experts()}, {"sets", sets}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string map_of_keys(const Watch& watch, const Request& request) {
  const auto run = one_run(watch, request);
  const int layer = layer_of(*run, request);
  if (!keys_are_own(*run)) return "{}";
  // The first position determines the size, so that a map has bounded memory.
  std::vector<KeyPositions> positions = read_key_positions(run->folder(), run->run_id(), layer, 1);
  if (positions.empty()) return "{}";
  const auto numbers = static_cast<std::size_t>(positions[0].keys.count * positions[0].keys.dimensions);
  const std::size_t most = std::clamp<std::size_t>(100 * max_positions_read / std::max<std::size_t>(1, numbers), 2, 60);
  positions = read_key_positions(run->folder(), run->run_id(), layer, most);
  if (positions.empty()) return "{}";
  Threads threads(1);  // one thread, so that training on this machine has priority
  std::optional<TsneMap> tsne_map;
  const Points& last = positions.back().keys;
  if (request.value("tsne") == "1" && last.count >= tsne_least_points &&
      last.count <= static_cast<std::int64_t>(max_keys_of_tsne)) {
    TsneSettings settings = resolve({}, last.count);
    const TsneResult result = tsne(threads, last, settings);
    TsneMap map;
    map.experts.resize(static_cast<std::size_t>(last.count));
    std::iota(map.experts.begin(), map.experts.end(), 0);
    map.places = result.points;
    map.note = fmt::format("t-SNE of step {}: perplexity {:.3g}, {} iterations, seed {}. Axes have no unit.",
                           positions.back().step, settings.perplexity, settings.iterations, settings.seed);
    tsne_map = std::move(map);
  }
  nlohmann::json out = key_map_chart(threads, "keys", "", "", positions, positions.back().usage, tsne_map).spec;
  out["tsne_can"] = last.count >= tsne_least_points && last.count <= static_cast<std::int64_t>(max_keys_of_tsne);
  return out.dump();
}

}  // namespace some
