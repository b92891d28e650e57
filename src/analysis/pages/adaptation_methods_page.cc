// The comparison of all adaptation methods as JSON and as a page.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/adaptation_methods.h"
#include "analysis/pages/key_charts.h"
#include "analysis/pages/run_header.h"

namespace some {
namespace {

using nlohmann::json;

json way_json(const AdaptMethod& way) {
  json windows = json::array();
  for (const AdaptMethod::Window& window : way.windows) windows.push_back({window.tokens, window.loss});
  json out{{"name", name_of(way.kind)}, {"learns", what_learns(way.kind)}, {"loss", way.loss},
           {"original", way.original},  {"seconds", way.seconds},          {"windows", windows},
           {"gain", way.gain},          {"forgotten", way.forgotten},      {"times_frozen", way.times_frozen}};
  if (!way.rate) return out;
  out["rate"] = *way.rate;
  for (const AdaptMethod::Tried& one : way.tried)
    out["tried"].push_back({{"rate", one.rate}, {"loss", one.loss}, {"original", one.original}});
  return out;
}

// Returns the loss over the stream, with windows merged into at most `most` points.
json curve_of(const AdaptMethod& way, std::size_t most) {
  json points = json::array();
  const std::size_t merged = std::max<std::size_t>(1, (way.windows.size() + most - 1) / most);
  double read = 0;
  for (std::size_t first = 0; first < way.windows.size(); first += merged) {
    double sum = 0, tokens = 0;
    for (std::size_t i = first; i < std::min(way.windows.size(), first + merged); ++i) {
      const auto count = static_cast<double>(way.windows[i].tokens);
      tokens += count;
      sum += count * way.windows[i].loss;
    }
    read += tokens;
    points.push_back(chart_point(read, sum / std::max(1.0, tokens)));
  }
  return points;
}

}  // namespace

json to_json(const AdaptMethodsReport& report) {
  json ways = json::array();
  for (const AdaptMethod& way : report.ways) {
    ways.push_back(way_json(way));
    if (report.bytes > 0) ways.back()["bits_per_byte"] = report.bits_per_byte(way.loss);
  }
  return {{"run", report.run},       {"step", report.step},
          {"data", report.data},     {"tokens", report.tokens},
          {"window", report.window}, {"original_tokens", report.original_tokens},
          {"slots", report.slots},   {"methods", std::move(ways)},
          {"bytes", report.bytes},   {"compressors", to_json(report.compressors)}};
}

std::string adapt_methods_page(const AdaptMethodsReport& report, const OpenedRun& run) {
  Header header = run_header("Learning during use", run);
  header.title =
      fmt::format("{} at step {} reads {} with each method of learning", run_name(run), report.step, report.data);
  header.facts.emplace_back("stream", fmt::format("{} tokens in windows of {}", report.tokens, report.window));
  Document document(std::move(header));
  document.paragraph(
      "Every token is predicted before the methods learn from it. Gain: loss of the frozen model minus loss of the "
      "method, on the same stream. Forgetting: increase of the loss on the validation text of the run afterwards. All "
      "in nats/token.");
  Table table{"methods",
              "Methods of learning during use",
              {{"way", "", false},
               {"what learns", "", false},
               {"loss", "", true},
               {"bits/byte", "", true},
               {"gain", "", true},
               {"original after", "", true},
               {"forgotten", "", true},
               {"seconds", "", true},
               {"times frozen", "", true}},
              {}};
  json series = json::array();
  const auto fixed = [](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  for (const AdaptMethod& way : report.ways) {
    std::string name = name_of(way.kind);
    if (way.rate) name += fmt::format(" (rate {})", *way.rate);
    table.rows.push_back({name, what_learns(way.kind), fixed(way.loss, 4),
                          report.bytes > 0 ? fixed(report.bits_per_byte(way.loss), 3) : "", fixed(way.gain, 4),
                          fixed(way.original, 4), fixed(way.forgotten, 4), fixed(way.seconds, way.seconds < 10 ? 3 : 1),
                          fixed(way.times_frozen, 2)});
    json one{{"name", name_of(way.kind)}, {"points", curve_of(way, 120)}};
    if (way.kind == AdaptMethodKind::frozen) one["role"] = "frozen";
    series.push_back(one);
  }
  document.table(std::move(table));
  if (report.bytes > 0) {
    Table sizes{"compressors",
                "Compression programs on the same stream",
                {{"program", "", false}, {"bytes", "", true}, {"bits/byte", "", true}},
                {}};
    for (const CompressorSize& size : report.compressors)
      sizes.rows.push_back({size.name, size.bytes ? fmt::format("{}", *size.bytes) : "not installed",
                            size.bytes
                                ? fixed(8 * static_cast<double>(*size.bytes) / static_cast<double>(report.bytes), 3)
                                : "package " + size.package});
    document.table(std::move(sizes));
  }
  document.chart(
      {"loss",
       "Loss over the stream",
       "",
       {{"kind", "lines"}, {"x", {{"name", "tokens read"}}}, {"y", {{"name", "nats/token"}}}, {"series", series}}});
  return write_html(document);
}

}  // namespace some
