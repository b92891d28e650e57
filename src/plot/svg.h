// Drawing as SVG text: a sheet of shapes and words, axes with round numbers, and one scale of colours.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace some {

// A number for people: 3 significant digits, no trailing zeros, 1e-05 where it is very small or large.
std::string short_number(double value);

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 13;
  Anchor anchor = Anchor::start;
  std::string colour = "#222222";
  bool bold = false;
  double turn = 0;  // degrees about its place
};

class Svg {
 public:
  // `title` is drawn at the top and is the document's title; `subtitle` (may be empty) stands under it.
  Svg(double width, double height, const std::string& title, const std::string& subtitle);
  void text(double x, double y, const std::string& words, const TextStyle& style = {});
  void line(double x1, double y1, double x2, double y2, const std::string& colour, double width = 1,
            const std::string& dashes = "");
  // `tip` (may be empty) is shown by a viewer when the mouse rests on the shape.
  void box(double x, double y, double width, double height, const std::string& fill, const std::string& stroke = "none",
           const std::string& tip = "");
  void circle(double x, double y, double radius, const std::string& fill, const std::string& stroke,
              const std::string& tip = "", double opacity = 1);
  void path(const std::vector<std::pair<double, double>>& points, const std::string& colour, double width,
            double opacity = 1);
  std::string finish() const;

  double width() const { return width_; }
  double height() const { return height_; }

 private:
  double width_, height_;
  std::string body_, title_;
};

// One axis: values to places on the sheet, linear or logarithmic.
struct Axis {
  double low = 0, high = 1;  // values
  double from = 0, to = 1;   // places
  bool logarithmic = false;
  double at(double value) const;
  std::vector<double> ticks(int about) const;  // round values within [low, high]; decades on a logarithmic axis
};

// Frame, grid, ticks and names of a plot's two axes.
void draw_axes(Svg& svg, const Axis& x, const Axis& y, const std::string& x_name, const std::string& y_name);
// From 0 (pale) to 1 (dark), distinct on white and in grey.
std::string scale_colour(double share);
// A bar of scale_colour with the ticks of `axis`; axis.from and axis.to are its lower and upper end.
void draw_colour_bar(Svg& svg, double x, const Axis& axis, const std::string& name);

}  // namespace some
