// The SVG plot of an adaptation: loss over the stream with learning keys and of the frozen control.
#include <algorithm>
#include <cmath>

#include "analysis/adapt.h"
#include "plot/svg.h"

namespace some {
namespace {

const char* const frozen_colour = "#777777";
const char* const active_colour = "#b3204d";

Axis around(double low, double high, double from, double to) {
  const double room = std::max((high - low) * 0.08, std::max(std::abs(high), 1e-9) * 1e-4);
  return {low - room, high + room, from, to};
}

std::vector<std::pair<double, double>> line_of(const std::vector<StreamSpan>& spans, const Axis& x, const Axis& y,
                                               double (*value)(const StreamSpan&)) {
  std::vector<std::pair<double, double>> out;
  for (const StreamSpan& span : spans) out.emplace_back(x.at(span.read), y.at(value(span)));
  return out;
}

}  // namespace

std::vector<StreamSpan> merge_windows(const AdaptReport& report, std::size_t most) {
  const std::vector<StreamWindow>& frozen = report.frozen.windows;
  const std::size_t merged = std::max<std::size_t>(1, (frozen.size() + most - 1) / most);
  std::vector<StreamSpan> out;
  double read = 0;
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    if (i % merged == 0) out.emplace_back();
    StreamSpan& span = out.back();
    const auto tokens = static_cast<double>(frozen[i].tokens);
    span.tokens += tokens;
    span.read = read += tokens;
    span.frozen += tokens * frozen[i].loss();
    if (report.active) span.active += tokens * report.active->windows[i].loss();
  }
  for (StreamSpan& span : out) {
    span.frozen /= std::max(span.tokens, 1.0);
    span.active /= std::max(span.tokens, 1.0);
  }
  return out;
}

std::string plot_adaptation(const AdaptReport& report) {
  const bool learnt = report.active.has_value();
  const std::vector<StreamSpan> spans = merge_windows(report, 160);
  constexpr double left = 100, right = 880, top = 106, middle = 386, lower = 484, bottom = 704;
  Svg svg(910, learnt ? 810 : 486, "Loss while reading " + report.data,
          report.run + " at step " + std::to_string(report.from_step) +
              (learnt ? ", keys updated by " + report.rules + ", " + std::to_string(report.updates) + " updates"
                      : ", keys frozen"));
  const double tokens = spans.empty() ? 1 : spans.back().read;
  const Axis x{0, tokens, left, right};
  double low = INFINITY, high = -INFINITY, least = 0, most = 0;
  for (const StreamSpan& span : spans) {
    low = std::min(low, learnt ? std::min(span.frozen, span.active) : span.frozen);
    high = std::max(high, learnt ? std::max(span.frozen, span.active) : span.frozen);
    least = std::min(least, span.frozen - span.active);
    most = std::max(most, span.frozen - span.active);
  }
  if (spans.empty()) low = 0, high = 1;
  const auto curve = [&](const Axis& y, double (*value)(const StreamSpan&), const char* colour) {
    svg.path(line_of(spans, x, y, value), colour, 1.8);
    // A stream of few windows is drawn with dots.
    if (spans.size() > 40) return;
    for (const auto& [at_x, at_y] : line_of(spans, x, y, value)) svg.circle(at_x, at_y, 3, colour, "#ffffff");
  };
  const Axis loss = around(low, high, middle, top);
  draw_axes(svg, x, loss, "tokens read", "loss (nats/token)");
  curve(
      loss, [](const StreamSpan& s) { return s.frozen; }, frozen_colour);
  svg.line(left, 82, left + 28, 82, frozen_colour, 3);
  svg.text(left + 36, 86, "frozen keys");
  if (!learnt) return svg.finish();
  curve(
      loss, [](const StreamSpan& s) { return s.active; }, active_colour);
  svg.line(left + 140, 82, left + 168, 82, active_colour, 3);
  svg.text(left + 176, 86, "learning keys");
  const Axis gain = around(least, most, bottom, lower);
  svg.text(left, lower - 14, "Gain from learning: loss with frozen keys minus loss with learning keys", {.bold = true});
  draw_axes(svg, x, gain, "tokens read", "gain (nats/token)");
  svg.line(left, gain.at(0), right, gain.at(0), "#444444", 1.2, "5 4");
  curve(
      gain, [](const StreamSpan& s) { return s.frozen - s.active; }, active_colour);
  const std::string each = spans.size() < report.frozen.windows.size() ? "Each point is the mean of several windows; a"
                                                                       : "Each point is one window; a";
  svg.text(left, bottom + 70,
           each + "bove the dashed line learning helps. Every token is predicted before keys learn from it.",
           {.size = 12, .colour = "#555555"});
  return svg.finish();
}

}  // namespace some
