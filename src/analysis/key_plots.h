// The pictures of a layer's keys and usage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plot/projection.h"

namespace some {

struct UsageScale {
  std::string name;  // of the quantity, with its unit
  double fair = 0;   // what every expert would have if all were used alike; 0: unknown
};

// Left, how many experts have which usage; right, the experts by falling usage. Both on a logarithmic scale of usage;
// experts never used are counted apart.
std::string usage_picture(const std::string& title, const std::string& subtitle, const std::vector<double>& usage,
                          const UsageScale& scale);

struct KeyMap {
  std::string title, subtitle, x_name, y_name;
  std::vector<std::string> notes;  // lines under the picture: settings, seed, how to read it
  std::vector<Point2> points;      // by place; `experts` says whose
  std::vector<int> experts;
};
std::string map_picture(const KeyMap& map, const std::vector<double>& usage, const UsageScale& scale);

// paths[i]: the places of experts[i] at the saved steps, earliest first.
std::string movement_picture(const KeyMap& map, const std::vector<std::vector<Point2>>& paths,
                             const std::vector<double>& usage, const UsageScale& scale);

}  // namespace some
