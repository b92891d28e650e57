// SVG drawing: shapes and text, axes with round tick values, and one color scale.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace some {

// Formats a number for display: 3 significant digits, no trailing zeros, exponent (1e-05) if very small or large.
std::string short_number(double value);

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 13;
  Anchor anchor = Anchor::start;
  std::string colour = "#222222";
  bool bold = false;
  double turn = 0;  // rotation about its position, in degrees
};

class Svg {
 public:
  // `title` is drawn at the top and set as the document's title; `subtitle` (may be empty) is drawn below it.
  Svg(double width, double height, const std::string& title, const std::string& subtitle);
  void text(double x, double y, const std::string& words, const TextStyle& style = {});
  void line(double x1, double y1, double x2, double y2, const std::string& colour, double width = 1,
            const std::string& dashes = "");
  // `tip` (may be empty) is the tooltip of the shape.
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

// Axis: maps values to positions on the sheet, linearly or logarithmically.
struct Axis {
  double low = 0, high = 1;  // values
  double from = 0, to = 1;   // positions
  bool logarithmic = false;
  double at(double value) const;
  std::vector<double> ticks(int about) const;  // round values within [low, high]; powers of ten on a logarithmic axis
};

// Draws frame, grid, ticks and names of a plot's two axes.
void draw_axes(Svg& svg, const Axis& x, const Axis& y, const std::string& x_name, const std::string& y_name);
// Returns the color for a share from 0 (pale) to 1 (dark), distinguishable on white and in grayscale.
std::string scale_color(double share);
// Draws a color bar with the ticks of `axis`; axis.from and axis.to are its lower and upper end.
void draw_color_bar(Svg& svg, double x, const Axis& axis, const std::string& name);

}  // namespace some
