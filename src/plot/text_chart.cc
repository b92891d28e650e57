#include "plot/text_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace some {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // An empty range is widened, so that its value is in the middle.
  void widen() {
    if (low < high) return;
    const double by = low == 0 ? 1 : std::abs(low) / 10;
    low -= by;
    high += by;
  }
  // Returns the cell of a value among `cells` cells.
  int cell(double value, int cells) const {
    return std::clamp(static_cast<int>((value - low) / (high - low) * cells), 0, cells - 1);
  }
};

class Canvas {
 public:
  Canvas(const std::vector<TextCurve>& curves, const TextChartOptions& options) : options_(options) {
    for (const TextCurve& curve : curves) {
      for (const auto& [x, y] : curve.points) {
        if (!drawn(x, y)) continue;
        x_.add(x);
        y_.add(scaled(y));
      }
    }
    if (x_.empty()) return;
    x_.widen();
    y_.widen();
    cells_.assign(static_cast<std::size_t>(options.height),
                  std::vector<std::string>(static_cast<std::size_t>(options.width), " "));
    for (const TextCurve& curve : curves) draw(curve);
  }

  std::string text() const {
    if (cells_.empty()) return "nothing to draw\n";
    const int last = options_.height - 1, ticks = std::min(4, std::max(1, last));
    std::vector<std::string> labels(cells_.size());
    std::size_t width = 0;
    for (int tick = 0; tick <= ticks; ++tick) {
      const int row = last * tick / ticks;
      const double height = (static_cast<double>(last - row) + 0.5) / options_.height;
      const double value = y_.low + height * (y_.high - y_.low);
      std::string& label = labels[static_cast<std::size_t>(row)];
      label = fmt::format("{:.4g}", options_.log ? std::exp(value) : value);
      width = std::max(width, label.size());
    }
    std::string out;
    for (std::size_t row = 0; row < cells_.size(); ++row) {
      std::string line = fmt::format("{:>{}} {}", labels[row], width, labels[row].empty() ? "│" : "┤");
      for (const std::string& cell : cells_[row]) line += cell;
      while (line.ends_with(' ')) line.pop_back();
      out += line + "\n";
    }
    out += std::string(width + 1, ' ') + "└";
    for (int column = 0; column < options_.width; ++column) out += "─";
    const std::string low = fmt::format("{:g}", x_.low), high = fmt::format("{:g} {}", x_.high, options_.x_name);
    const auto room = static_cast<std::size_t>(options_.width);
    const std::size_t gap = room > low.size() + high.size() ? room - low.size() - high.size() : 1;
    return out + "\n" + std::string(width + 2, ' ') + low + std::string(gap, ' ') + high + "\n";
  }

 private:
  double scaled(double y) const { return options_.log ? std::log(y) : y; }
  bool drawn(double x, double y) const { return std::isfinite(x) && std::isfinite(y) && (!options_.log || y > 0); }

  void put(int column, double y, const std::string& mark) {
    const int row = options_.height - 1 - y_.cell(y, options_.height);
    cells_[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] = mark;
  }

  // Returns the mean of the points in each column; columns between points are interpolated linearly.
  void draw(const TextCurve& curve) {
    std::vector<std::pair<double, int>> sums(static_cast<std::size_t>(options_.width));
    for (const auto& [x, y] : curve.points) {
      if (!drawn(x, y)) continue;
      auto& [sum, count] = sums[static_cast<std::size_t>(x_.cell(x, options_.width))];
      sum += scaled(y);
      ++count;
    }
    std::optional<int> before;
    const auto mean = [&](int column) {
      const auto& [sum, count] = sums[static_cast<std::size_t>(column)];
      return sum / count;
    };
    for (int column = 0; column < options_.width; ++column) {
      if (sums[static_cast<std::size_t>(column)].second == 0) continue;
      for (int between = before.value_or(column) + 1; curve.line && between < column; ++between) {
        const double way = static_cast<double>(between - *before) / (column - *before);
        put(between, (1 - way) * mean(*before) + way * mean(column), curve.mark);
      }
      put(column, mean(column), curve.mark);
      before = column;
    }
  }

  TextChartOptions options_;
  Range x_, y_;
  std::vector<std::vector<std::string>> cells_;
};

}  // namespace

std::string text_chart(const std::vector<TextCurve>& curves, const TextChartOptions& options) {
  return Canvas(curves, options).text();
}

}  // namespace some
