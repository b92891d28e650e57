// Curves drawn with characters, for terminals.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace some {

struct TextCurve {
  std::string mark;                               // one character
  std::vector<std::pair<double, double>> points;  // by rising x
  bool line = true;                               // connect the points
};

struct TextChartOptions {
  int width = 72, height = 16;  // of the area between the axes, in characters
  bool log = false;             // logarithmic y axis; values that are not positive are left out
  std::string x_name;
};

// Returns lines of text, each ending with a newline. Points that are not finite are left out. Where curves meet, the
// last one is seen.
std::string text_chart(const std::vector<TextCurve>& curves, const TextChartOptions& options);

}  // namespace some
