#include "analysis/pages/key_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plot/svg.h"

namespace some {
namespace {

const char* const unused_colour = "#cccccc";

// Logarithmic range of all relevant usages: values 1e8 times smaller than the largest count as never used.
struct LogRange {
  double low = 0.1, high = 1;
  bool any = false;
};

LogRange log_range(const std::vector<double>& usage, double also) {
  LogRange range;
  const double most = usage.empty() ? 0.0 : *std::max_element(usage.begin(), usage.end());
  if (!(most > 0)) return range;
  double least = most;
  for (const double u : usage) {
    if (u > most * 1e-8) least = std::min(least, u);
  }
  const double top = std::max(most, also);
  if (also > 0) least = std::min(least, also);
  // Rounded outward to half decades, so that neither end of the axis is empty.
  range.low = std::pow(10.0, std::floor(std::log10(least) * 2 - 1e-9) / 2);
  range.high = std::pow(10.0, std::ceil(std::log10(top) * 2 + 1e-9) / 2);
  if (range.high <= range.low) range.high = range.low * std::sqrt(10.0);
  range.any = true;
  return range;
}

std::string expert_tip(int expert, double usage) { return fmt::format("expert {}: {}", expert, short_number(usage)); }

struct Ranges {
  double low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY;
  void add(const Point2& p) {
    low_x = std::min(low_x, p.x);
    high_x = std::max(high_x, p.x);
    low_y = std::min(low_y, p.y);
    high_y = std::max(high_y, p.y);
  }
  // Uses the same scale on both axes, so that distances are comparable in all directions.
  void fit(double width, double height) {
    if (!(high_x >= low_x)) low_x = low_y = -1, high_x = high_y = 1;
    const double scale = std::max({(high_x - low_x) / width, (high_y - low_y) / height, 1e-12}) * 1.08;
    const double x = (low_x + high_x) / 2, y = (low_y + high_y) / 2;
    low_x = x - scale * width / 2;
    high_x = x + scale * width / 2;
    low_y = y - scale * height / 2;
    high_y = y + scale * height / 2;
  }
};

constexpr double map_left = 84, map_right = 780, map_top = 74, map_bottom = 634, map_width = 910;

struct MapFrame {
  Svg svg;
  Axis x, y, colour;
  bool any = false;
  std::string colour_of(double usage) const {
    if (!any || usage < colour.low) return unused_colour;
    return scale_color((std::log10(usage) - std::log10(colour.low)) /
                       (std::log10(colour.high) - std::log10(colour.low)));
  }
};

MapFrame map_frame(const KeyMap& map, Ranges ranges, const std::vector<double>& usage, const UsageScale& scale,
                   bool numbers, const std::vector<std::string>& more_notes) {
  std::vector<std::string> notes = more_notes;
  notes.insert(notes.end(), map.notes.begin(), map.notes.end());
  const double first_note = map_bottom + (numbers ? 66 : 40);
  MapFrame frame{Svg(map_width, first_note + 19 * static_cast<double>(notes.size()) + 30, map.title, map.subtitle),
                 {},
                 {},
                 {},
                 false};
  ranges.fit(map_right - map_left, map_bottom - map_top);
  frame.x = {ranges.low_x, ranges.high_x, map_left, map_right, false};
  frame.y = {ranges.low_y, ranges.high_y, map_bottom, map_top, false};
  const LogRange range = log_range(usage, 0);
  frame.any = range.any;
  frame.colour = {range.low, range.high, map_bottom - 120, map_top + 20, true};
  if (numbers) {
    draw_axes(frame.svg, frame.x, frame.y, map.x_name, map.y_name);
  } else {
    // Positions in a t-SNE map have no unit: only neighborhoods are meaningful.
    frame.svg.box(map_left, map_top, map_right - map_left, map_bottom - map_top, "none", "#bbbbbb");
    frame.svg.text((map_left + map_right) / 2, map_bottom + 18, map.x_name,
                   {.anchor = Anchor::middle, .colour = "#444444"});
  }
  if (range.any) draw_color_bar(frame.svg, 806, frame.colour, scale.name);
  const bool some_unused =
      std::any_of(usage.begin(), usage.end(), [&](double u) { return !range.any || u < range.low; });
  if (some_unused) {
    frame.svg.circle(814, map_bottom - 84, 6, unused_colour, "#555555");
    frame.svg.text(826, map_bottom - 80, "never used", {.size = 12, .colour = "#444444"});
  }
  double y = first_note;
  for (const std::string& note : notes) {
    frame.svg.text(map_left, y, note, {.size = 12.5, .colour = "#555555"});
    y += 19;
  }
  return frame;
}

// Selects the experts labeled in the picture: all of a small library, the busiest of a large one.
std::vector<bool> named(const KeyMap& map, const std::vector<double>& usage) {
  const std::size_t count = map.experts.size();
  std::vector<bool> out(count, count <= 128);
  if (count <= 128) return out;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto use = [&](std::size_t i) { return usage[static_cast<std::size_t>(map.experts[i])]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return use(a) > use(b); });
  for (std::size_t i = 0; i < 24; ++i) out[order[i]] = true;
  return out;
}

// Writes numbers next to dots, each on the first side where it overlaps neither a dot nor a number already written;
// omitted if no side is free.
void write_numbers(Svg& svg, const std::vector<std::pair<double, double>>& dots, const std::vector<std::string>& names,
                   double radius) {
  struct Box {
    double left, top, right, bottom;
    bool meets(const Box& b) const { return left < b.right && b.left < right && top < b.bottom && b.top < bottom; }
  };
  std::vector<Box> taken;
  for (const auto& [x, y] : dots) taken.push_back({x - radius, y - radius, x + radius, y + radius});
  for (std::size_t i = 0; i < dots.size(); ++i) {
    if (names[i].empty()) continue;
    const auto [x, y] = dots[i];
    const double width = 6.6 * static_cast<double>(names[i].size()), height = 9, gap = radius + 2;
    const std::pair<double, double> corners[] = {
        {x + gap, y - gap - height / 2},   {x - gap - width, y - gap - height / 2},
        {x + gap, y + gap - height / 2},   {x - gap - width, y + gap - height / 2},
        {x + gap, y - height / 2},         {x - gap - width, y - height / 2},
        {x - width / 2, y - gap - height}, {x - width / 2, y + gap}};
    for (const auto& [left, top] : corners) {
      const Box box{left, top, left + width, top + height};
      if (std::any_of(taken.begin(), taken.end(), [&](const Box& other) { return box.meets(other); })) continue;
      svg.text(left, top + height, names[i], {.size = 10.5, .colour = "#333333"});
      taken.push_back(box);
      break;
    }
  }
}

}  // namespace

std::string plot_usage(const std::string& title, const std::string& subtitle, const std::vector<double>& usage,
                       const UsageScale& scale) {
  const LogRange range = log_range(usage, scale.fair);
  Svg svg(1080, 470, title, subtitle);
  const double top = 84, bottom = 400;
  std::int64_t never = 0;
  for (const double u : usage) never += !range.any || u < range.low;

  // Histogram: bins of equal width on the logarithmic scale, with a separate bar for experts never used.
  const double decades = std::log10(range.high) - std::log10(range.low);
  const int bins = std::clamp(static_cast<int>(std::lround(decades * 5)), 5, 30);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(bins), 0);
  for (const double u : usage) {
    if (!range.any || u < range.low) continue;
    const int bin = std::min(static_cast<int>((std::log10(u) - std::log10(range.low)) / decades * bins), bins - 1);
    counts[static_cast<std::size_t>(bin)] += 1;
  }
  const double tallest = static_cast<double>(std::max(never, *std::max_element(counts.begin(), counts.end())));
  Axis y{0, std::max(tallest, 1.0) * 1.08, bottom, top, false};
  const double left = 84, gap = never > 0 ? 84 : 0;
  Axis x{range.low, range.high, left + gap, 500, true};
  for (const double tick : y.ticks(6)) {
    if (tick != std::floor(tick)) continue;
    svg.line(left, y.at(tick), 500, y.at(tick), "#e4e4e4");
    svg.text(left - 8, y.at(tick) + 4, short_number(tick), {.size = 12, .anchor = Anchor::end, .colour = "#444444"});
  }
  if (range.any) {
    for (const double tick : x.ticks(6)) {
      svg.line(x.at(tick), bottom, x.at(tick), bottom + 5, "#888888");
      svg.text(x.at(tick), bottom + 19, short_number(tick),
               {.size = 12, .anchor = Anchor::middle, .colour = "#444444"});
    }
    const double width = (x.to - x.from) / bins;
    for (int i = 0; i < bins; ++i) {
      const auto count = counts[static_cast<std::size_t>(i)];
      if (count == 0) continue;
      const double from = range.low * std::pow(10.0, decades * i / bins),
                   to = range.low * std::pow(10.0, decades * (i + 1) / bins);
      svg.box(x.from + i * width + 1, y.at(static_cast<double>(count)), width - 2,
              bottom - y.at(static_cast<double>(count)), scale_color((i + 0.5) / bins), "none",
              fmt::format("{} experts between {} and {}", count, short_number(from), short_number(to)));
    }
  }
  if (never > 0) {
    svg.box(left + 10, y.at(static_cast<double>(never)), 36, bottom - y.at(static_cast<double>(never)), unused_colour,
            "none", fmt::format("{} experts never used", never));
    svg.text(left + 28, bottom + 19, "never", {.size = 12, .anchor = Anchor::middle, .colour = "#444444"});
  }
  svg.line(left, bottom, 500, bottom, "#888888");
  svg.line(left, bottom, left, top, "#888888");
  svg.text((left + 500) / 2, bottom + 44, scale.name + ", logarithmic",
           {.anchor = Anchor::middle, .colour = "#444444"});
  svg.text(left - 52, (top + bottom) / 2, "number of experts",
           {.anchor = Anchor::middle, .colour = "#444444", .turn = -90});

  // Usage of each expert by rank.
  std::vector<int> order(usage.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return usage[static_cast<std::size_t>(a)] > usage[static_cast<std::size_t>(b)];
  });
  const double experts = static_cast<double>(usage.size());
  Axis rank{0.5, experts + 0.5, 640, 1050, false};
  Axis level{range.low, range.high, bottom, top, true};
  if (range.any) {
    for (const double tick : level.ticks(6)) {
      svg.line(rank.from, level.at(tick), rank.to, level.at(tick), "#e4e4e4");
      svg.text(rank.from - 8, level.at(tick) + 4, short_number(tick),
               {.size = 12, .anchor = Anchor::end, .colour = "#444444"});
    }
    const double width = (rank.to - rank.from) / experts;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const double u = usage[static_cast<std::size_t>(order[i])];
      if (u < range.low) break;
      const double share = (std::log10(u) - std::log10(range.low)) / decades, pad = width > 4 ? 0.5 : -0.3;
      svg.box(rank.from + static_cast<double>(i) * width + pad, level.at(u), width - 2 * pad, bottom - level.at(u),
              scale_color(share), "none", expert_tip(order[i], u));
    }
    if (scale.fair > 0) {
      svg.line(rank.from, level.at(scale.fair), rank.to, level.at(scale.fair), "#1f6f43", 1.5, "6 4");
      svg.text(rank.to, level.at(scale.fair) - 6, fmt::format("fair share {}", short_number(scale.fair)),
               {.size = 12, .anchor = Anchor::end, .colour = "#1f6f43"});
    }
  } else {
    svg.text((rank.from + rank.to) / 2, (top + bottom) / 2, "no expert has been used",
             {.anchor = Anchor::middle, .colour = "#888888"});
  }
  svg.line(rank.from, bottom, rank.to, bottom, "#888888");
  svg.line(rank.from, bottom, rank.from, top, "#888888");
  std::vector<double> rank_ticks{1};
  for (const double tick : rank.ticks(6)) {
    if (tick > 1) rank_ticks.push_back(tick);
  }
  for (const double tick : rank_ticks) {
    if (tick == std::floor(tick))
      svg.text(rank.at(tick), bottom + 19, short_number(tick),
               {.size = 12, .anchor = Anchor::middle, .colour = "#444444"});
  }
  svg.text((rank.from + rank.to) / 2, bottom + 44, "experts, highest load first",
           {.anchor = Anchor::middle, .colour = "#444444"});
  svg.text(rank.from - 60, (top + bottom) / 2, scale.name,
           {.anchor = Anchor::middle, .colour = "#444444", .turn = -90});
  return svg.finish();
}

std::string plot_key_map(const KeyMap& map, const std::vector<double>& usage, const UsageScale& scale) {
  Ranges ranges;
  for (const Point2& point : map.points) ranges.add(point);
  const std::vector<bool> show = named(map, usage);
  std::vector<std::string> notes;
  notes.push_back(map.experts.size() <= 128
                      ? "One dot per key, with the number of its expert."
                      : "One dot per key; the most used experts have their number if there is room.");
  MapFrame frame = map_frame(map, ranges, usage, scale, !map.y_name.empty(), notes);
  const double radius = map.points.size() <= 128 ? 6 : map.points.size() <= 512 ? 4.5 : 3.5;
  // The busiest are drawn last, so that nothing covers them.
  std::vector<std::size_t> order(map.points.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto use = [&](std::size_t i) { return usage[static_cast<std::size_t>(map.experts[i])]; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return use(a) < use(b); });
  for (const std::size_t i : order) {
    frame.svg.circle(frame.x.at(map.points[i].x), frame.y.at(map.points[i].y), radius, frame.colour_of(use(i)),
                     "#444444", expert_tip(map.experts[i], use(i)));
  }
  std::vector<std::pair<double, double>> dots;
  std::vector<std::string> names;
  // Labels of the busiest are placed first.
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    dots.emplace_back(frame.x.at(map.points[*i].x), frame.y.at(map.points[*i].y));
    names.push_back(show[*i] ? fmt::format("{}", map.experts[*i]) : std::string());
  }
  write_numbers(frame.svg, dots, names, radius);
  return frame.svg.finish();
}

std::string plot_key_movement(const KeyMap& map, const std::vector<std::vector<Point2>>& paths,
                              const std::vector<double>& usage, const UsageScale& scale) {
  Ranges ranges;
  for (const auto& path : paths) {
    for (const Point2& point : path) ranges.add(point);
  }
  const std::vector<bool> show = named(map, usage);
  MapFrame frame = map_frame(map, ranges, usage, scale, true,
                             {"A hollow dot is a key's first position, a full dot its current one; the line shows the "
                              "saved steps between them."});
  const auto use = [&](std::size_t i) { return usage[static_cast<std::size_t>(map.experts[i])]; };
  const double radius = paths.size() <= 128 ? 5 : 3.5;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    std::vector<std::pair<double, double>> line;
    for (const Point2& point : paths[i]) line.emplace_back(frame.x.at(point.x), frame.y.at(point.y));
    frame.svg.path(line, frame.colour_of(use(i)), 1.6, 0.75);
    if (!line.empty())
      frame.svg.circle(line.front().first, line.front().second, radius * 0.6, "#ffffff", frame.colour_of(use(i)));
  }
  std::vector<std::pair<double, double>> dots;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].empty()) continue;
    const double x = frame.x.at(paths[i].back().x), y = frame.y.at(paths[i].back().y);
    frame.svg.circle(x, y, radius, frame.colour_of(use(i)), "#444444", expert_tip(map.experts[i], use(i)));
    dots.emplace_back(x, y);
    names.push_back(show[i] ? fmt::format("{}", map.experts[i]) : std::string());
  }
  write_numbers(frame.svg, dots, names, radius);
  return frame.svg.finish();
}

}  // namespace some
