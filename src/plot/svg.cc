#include "plot/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plot/escape_html.h"

namespace some {
namespace {

const char* anchor_name(Anchor anchor) {
  switch (anchor) {
    case Anchor::middle: return "middle";
    case Anchor::end: return "end";
    default: return "start";
  }
}

std::string tip_element(const std::string& tip) {
  return tip.empty() ? "/>\n" : fmt::format("><title>{}</title></", escape(tip));
}

}  // namespace

std::string short_number(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e5 || size < 1e-3) return fmt::format("{:.3g}", value);
  if (size >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

Svg::Svg(double width, double height, const std::string& title, const std::string& subtitle)
    : width_(width), height_(height), title_(title) {
  text(24, 32, title, {.size = 19, .bold = true});
  if (!subtitle.empty()) text(24, 53, subtitle, {.size = 13, .colour = "#555555"});
}

void Svg::text(double x, double y, const std::string& words, const TextStyle& style) {
  body_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" fill=\"{}\"", x, y, style.size, style.colour);
  if (style.anchor != Anchor::start) body_ += fmt::format(" text-anchor=\"{}\"", anchor_name(style.anchor));
  if (style.bold) body_ += " font-weight=\"600\"";
  if (style.turn != 0) body_ += fmt::format(" transform=\"rotate({:g} {:.1f} {:.1f})\"", style.turn, x, y);
  body_ += fmt::format(">{}</text>\n", escape(words));
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& colour, double width,
               const std::string& dashes) {
  body_ +=
      fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{:g}\"",
                  x1, y1, x2, y2, colour, width);
  if (!dashes.empty()) body_ += fmt::format(" stroke-dasharray=\"{}\"", dashes);
  body_ += "/>\n";
}

void Svg::box(double x, double y, double width, double height, const std::string& fill, const std::string& stroke,
              const std::string& tip) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"{}\"",
                       x, y, std::max(width, 0.0), std::max(height, 0.0), fill, stroke);
  body_ += tip_element(tip);
  if (!tip.empty()) body_ += "rect>\n";
}

void Svg::circle(double x, double y, double radius, const std::string& fill, const std::string& stroke,
                 const std::string& tip, double opacity) {
  body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\" stroke=\"{}\"", x, y, radius, fill,
                       stroke);
  if (opacity < 1) body_ += fmt::format(" opacity=\"{:g}\"", opacity);
  body_ += tip_element(tip);
  if (!tip.empty()) body_ += "circle>\n";
}

void Svg::path(const std::vector<std::pair<double, double>>& points, const std::string& colour, double width,
               double opacity) {
  if (points.size() < 2) return;
  body_ += "<polyline points=\"";
  for (const auto& [x, y] : points) body_ += fmt::format("{:.1f},{:.1f} ", x, y);
  body_ +=
      fmt::format("\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:g}\" stroke-linejoin=\"round\" opacity=\"{:g}\"/>\n",
                  colour, width, opacity);
}

std::string Svg::finish() const {
  // White background, so that the picture looks the same in a viewer with a dark theme.
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
      "font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\" role=\"img\">\n"
      "<title>{2}</title>\n<rect x=\"0\" y=\"0\" width=\"{0:g}\" height=\"{1:g}\" fill=\"#ffffff\"/>\n{3}</svg>\n",
      width_, height_, escape(title_), body_);
}

double Axis::at(double value) const {
  double share = 0.5;
  if (logarithmic) {
    if (high > low && value > 0) share = (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  } else if (high > low) {
    share = (value - low) / (high - low);
  }
  return from + share * (to - from);
}

std::vector<double> Axis::ticks(int about) const {
  std::vector<double> out;
  if (logarithmic) {
    const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9)),
              last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
    if (last - first >= 2) {
      const int stride = std::max(1, (last - first + about - 1) / about);
      for (int decade = first; decade <= last; decade += stride) out.push_back(std::pow(10.0, decade));
      return out;
    }
    for (int decade = first - 1; decade <= last; ++decade) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double value = digit * std::pow(10.0, decade);
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) out.push_back(value);
      }
    }
    if (out.size() >= 2) return out;
    return {low, high};
  }
  const double rough = (high - low) / std::max(about, 1);
  if (!(rough > 0)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double stride = 10 * power;
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= rough * (1 - 1e-9)) {
      stride = digit * power;
      break;
    }
  }
  for (double value = std::ceil(low / stride - 1e-9) * stride; value <= high + 1e-9 * stride; value += stride)
    out.push_back(std::abs(value) < 1e-9 * stride ? 0.0 : value);
  return out;
}

void draw_axes(Svg& svg, const Axis& x, const Axis& y, const std::string& x_name, const std::string& y_name) {
  const std::string grid = "#e4e4e4", frame = "#888888", words = "#444444";
  for (const double tick : x.ticks(6)) {
    const double place = x.at(tick);
    svg.line(place, y.from, place, y.to, grid);
    svg.text(place, y.from + 18, short_number(tick), {.size = 12, .anchor = Anchor::middle, .colour = words});
  }
  for (const double tick : y.ticks(6)) {
    const double place = y.at(tick);
    svg.line(x.from, place, x.to, place, grid);
    svg.text(x.from - 8, place + 4, short_number(tick), {.size = 12, .anchor = Anchor::end, .colour = words});
  }
  svg.line(x.from, y.from, x.to, y.from, frame);
  svg.line(x.from, y.from, x.from, y.to, frame);
  svg.text((x.from + x.to) / 2, y.from + 40, x_name, {.size = 13, .anchor = Anchor::middle, .colour = words});
  svg.text(x.from - 52, (y.from + y.to) / 2, y_name,
           {.size = 13, .anchor = Anchor::middle, .colour = words, .turn = -90});
}

std::string scale_color(double share) {
  static constexpr std::array<std::array<int, 3>, 5> stops{
      {{255, 221, 140}, {247, 148, 72}, {214, 66, 92}, {128, 42, 128}, {36, 22, 83}}};
  const double place = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0) * (stops.size() - 1);
  const auto first = std::min(static_cast<std::size_t>(place), stops.size() - 2);
  const double part = place - static_cast<double>(first);
  int mixed[3];
  for (std::size_t i = 0; i < 3; ++i)
    mixed[i] = static_cast<int>(std::lround(stops[first][i] + part * (stops[first + 1][i] - stops[first][i])));
  return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
}

void draw_color_bar(Svg& svg, double x, const Axis& axis, const std::string& name) {
  constexpr int pieces = 64;
  const double height = (axis.from - axis.to) / pieces;
  for (int i = 0; i < pieces; ++i) {
    const std::string colour = scale_color((i + 0.5) / pieces);
    svg.box(x, axis.from - (i + 1) * height, 16, height + 0.5, colour);
  }
  for (const double tick : axis.ticks(6)) {
    svg.line(x + 16, axis.at(tick), x + 21, axis.at(tick), "#888888");
    svg.text(x + 25, axis.at(tick) + 4, short_number(tick), {.size = 12, .colour = "#444444"});
  }
  svg.text(x + 76, (axis.from + axis.to) / 2, name,
           {.size = 13, .anchor = Anchor::middle, .colour = "#444444", .turn = -90});
}

}  // namespace some
