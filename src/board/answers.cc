#include "board/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "board/inside.h"
#include "board/samples.h"
#include "board/slots.h"
#include "core/error.h"
#include "plot/escape_html.h"
#include "recipe/schema.h"

namespace some {
namespace {

constexpr std::size_t max_runs_asked = 500;

Range range_of(const Request& request) {
  Range range;
  if (const std::string text = request.value("from"); !text.empty()) range.from = number_of("from", text);
  if (const std::string text = request.value("to"); !text.empty()) range.to = number_of("to", text);
  return range;
}

std::string all_runs(const Watch& watch, const Request&) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& run : watch.runs()) list.push_back(run->summary());
  return nlohmann::json{{"runs", list}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns one metric of several runs: curves with smoothed versions, or one band per group of runs.
std::string points(const Watch& watch, const Request& request) {
  const std::string metric = request.value("metric");
  const auto axis = x_axis(request.value("x"));
  if (!axis) bad_input(Code::request_invalid, "{}: must be step, tokens, time, elapsed, clock or a metric", "x");
  const bool in_order = axis->kind == XAxis::Kind::metric;
  // 0: all points, no downsampling.
  auto buckets = static_cast<std::size_t>(number_of(request, "buckets", 300, 0, 5000));
  if (buckets == 0) buckets = std::numeric_limits<std::size_t>::max() / 2;
  const double keep = number_of(request, "smooth", 0, 0, 0.999);
  const Range range = range_of(request);
  const std::string band_by = request.value("band");  // "1": runs that differ only in their seed; else a setting
  const auto group_of = [&](const RunLog& run) {
    if (band_by == "1") return run.summary()["group"].get<std::string>();
    const auto settings = run.settings();
    const auto found = settings.find(band_by);
    return found == settings.end() ? std::string() : valid_text(found->second);
  };
  std::string out = "{\"runs\":[";
  bool first = true;
  std::map<std::string, std::vector<std::vector<XY>>> groups;
  for (const auto& run : requested_runs(watch, request)) {
    // Counts rows first: a line that arrives during the answer is sent twice rather than never.
    const std::size_t rows = run->rows(metric);
    // Smoothing starts at the first value, whatever range is displayed.
    std::vector<XY> all = run->curve(metric, *axis, keep > 0 || in_order ? Range{} : range);
    Smoother smoother(keep);
    std::vector<XY> calm = keep > 0 ? smoothed(all, smoother) : std::vector<XY>{};
    // The chart clips a curve that may leave the range and come back.
    if (keep > 0 && !in_order) {
      std::erase_if(all, [&](const XY& point) { return !range.has(point.x); });
      std::erase_if(calm, [&](const XY& point) { return !range.has(point.x); });
    }
    if (!band_by.empty() && !in_order) groups[group_of(*run)].push_back(keep > 0 ? calm : all);
    out += fmt::format("{}{{\"id\":\"{}\",\"rows\":{},\"points\":", first ? "" : ",", run->id(), rows);
    first = false;
    append_points(out, downsampled(all, buckets, in_order));
    if (keep > 0) {
      out += ",\"smooth\":";
      append_points(out, downsampled(calm, buckets, in_order));
      out += fmt::format(",\"state\":[{},{}]", smoother.sum(), smoother.weight());
    }
    out += '}';
  }
  out += "],\"bands\":[";
  first = true;
  for (const auto& [group, curves] : groups) {
    if (curves.size() < 2) continue;
    out += fmt::format("{}{{\"group\":{},\"points\":[", first ? "" : ",", nlohmann::json(group).dump());
    first = false;
    bool first_point = true;
    for (const BandPoint& point : band(curves, buckets)) {
      out += first_point ? "[" : ",[";
      first_point = false;
      for (const double number : {point.x, point.mean, point.low, point.high}) {
        append_number(out, number);
        out += ',';
      }
      out.back() = ']';
    }
    out += "]}";
  }
  return out + "]}";
}

// Returns the settings in which the runs differ; for a single run, all settings.
std::string settings(const Watch& watch, const Request& request) {
  const auto runs = requested_runs(watch, request);
  std::vector<std::map<std::string, std::string>> of;
  for (const auto& run : runs) of.push_back(run->settings());
  nlohmann::json ids = nlohmann::json::array(), rows = nlohmann::json::array();
  for (const auto& run : runs) ids.push_back(run->id());
  std::vector<std::string> names;
  for (const RecipeKey& key : recipe_keys()) names.push_back(key.full_name());
  std::set<std::string> more;
  for (const auto& one : of) {
    for (const auto& [key, value] : one) more.insert(key);
  }
  for (const std::string& name : names) more.erase(name);
  names.insert(names.end(), more.begin(), more.end());
  for (const std::string& name : names) {
    nlohmann::json values = nlohmann::json::array();
    std::set<std::string> different;
    for (const auto& one : of) {
      const auto found = one.find(name);
      const std::string value = found == one.end() ? "" : valid_text(found->second);
      different.insert(value);
      values.push_back(value);
    }
    if (different.size() > 1 || (of.size() == 1 && !different.contains("")))
      rows.push_back({{"key", name}, {"values", values}});
  }
  return nlohmann::json{{"runs", ids}, {"rows", rows}}.dump();
}

}  // namespace

double number_of(const std::string& name, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    bad_input(Code::request_invalid, "{}: must be a number", name);
  return value;
}

double number_of(const Request& request, const std::string& name, double usual, double least, double most) {
  const std::string text = request.value(name);
  if (text.empty()) return usual;
  const double value = number_of(name, text);
  if (value < least || value > most)
    bad_input(Code::request_invalid, "{}: must be a number from {} to {}", name, least, most);
  return value;
}

void append_points(std::string& out, const std::vector<XY>& points) {
  out += '[';
  bool first = true;
  for (const XY& point : points) {
    out += first ? "[" : ",[";
    first = false;
    append_number(out, point.x);
    out += ',';
    append_number(out, point.y);
    out += ']';
  }
  out += ']';
}

std::vector<std::shared_ptr<RunLog>> requested_runs(const Watch& watch, const Request& request) {
  const std::string list = request.value("runs");
  std::vector<std::shared_ptr<RunLog>> out;
  for (std::size_t begin = 0; begin < list.size() && out.size() < max_runs_asked;) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (const auto run = watch.find(list.substr(begin, end - begin))) out.push_back(run);
    begin = end + 1;
  }
  return out;
}

const std::vector<Question>& questions() {
  static const std::vector<Question> all = {
      {"/api/runs", true, false, all_runs},
      {"/api/points", false, false, points},
      {"/api/settings", false, false, settings},
      {"/api/layers", false, false, layer_curves},
      {"/api/load", false, false, expert_load},
      {"/api/together", false, false, chosen_together},
      {"/api/keys", false, true, map_of_keys},
      {"/api/memory", false, true, slots_of_memory},
      {"/api/samples", false, true, generated_samples},
  };
  return all;
}

}  // namespace some
