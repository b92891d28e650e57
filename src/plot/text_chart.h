// Curves drawn with characters, for terminals.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace some {

struct TextCurve {
  std::string mark;                               // one character
  std::vector<std::pair<double, double>> points;  // sorted by x
  bool line = true;                               // connect the points
};

struct TextChartOptions {
  int width = 72, height = 16;  // size of the plot area, in characters
  bool log = false;             // logarithmic y axis; omits values that are not positive
  std::string x_name;
};

// Returns lines of text, each ending with a newline. Points that are not finite are omitted. Later curves are drawn
// over earlier ones.
std::string text_chart(const std::vector<TextCurve>& curves, const TextChartOptions& options);

}  // namespace some
