// SVG plots of a layer's keys and usage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plot/projection.h"

namespace some {

struct UsageScale {
  std::string name;  // name of the quantity, with its unit
  double fair = 0;   // uniform load per expert; 0: unknown
};

// Left: histogram of usage. Right: experts sorted by decreasing usage. Both use a logarithmic scale; experts never used
// are counted separately.
std::string plot_usage(const std::string& title, const std::string& subtitle, const std::vector<double>& usage,
                       const UsageScale& scale);

struct KeyMap {
  std::string title, subtitle, x_name, y_name;
  std::vector<std::string> notes;  // lines below the picture: settings, seed, how to read it
  std::vector<Point2> points;      // points[i] belongs to experts[i]
  std::vector<int> experts;
};
std::string plot_key_map(const KeyMap& map, const std::vector<double>& usage, const UsageScale& scale);

// paths[i]: positions of experts[i] at the saved steps, earliest first.
std::string plot_key_movement(const KeyMap& map, const std::vector<std::vector<Point2>>& paths,
                              const std::vector<double>& usage, const UsageScale& scale);

}  // namespace some
